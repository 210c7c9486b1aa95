"""The import path `smdebug.core.hook_utils` of smdebug 1.0."""

from __future__ import annotations

from smdebug.config.options import HookOptions
from smdebug.core.access_layer import check_dir_exists
from smdebug.exceptions import SMDebugRuntimeError

__all__ = ["verify_and_get_out_dir"]


def verify_and_get_out_dir(out_dir: str | None) -> str:
    """Return the directory or URL with `~` expanded, if a new run may go there.

    Raises:
        SMDebugRuntimeError: there is none, or a finished run is there.
    """
    found = HookOptions(out_dir).out_dir
    if found is None:
        raise SMDebugRuntimeError("out_dir must be a directory or a URL to save to, got None")
    check_dir_exists(found)
    return found
