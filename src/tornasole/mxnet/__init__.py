"""`smdebug.mxnet` under the older name."""

from smdebug.mxnet import *  # noqa: F403
from smdebug.mxnet import __all__ as __all__
