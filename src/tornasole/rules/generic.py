"""`tornasole.rules.generic` is `smdebug.rules.generic`."""

from smdebug.rules.generic import __all__ as __all__
from smdebug.rules.generic import __getattr__ as __getattr__
