"""`tornasole.rules` is `smdebug.rules`."""

from smdebug.rules import *  # noqa: F403
from smdebug.rules import __all__ as __all__
