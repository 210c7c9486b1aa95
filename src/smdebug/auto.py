"""Attaches a hook to a script by being imported: one line, and nothing else changes.

import smdebug.auto

What is saved is described by the job file that `SMDEBUG_CONFIG_FILE_PATH` names, or that a
SageMaker job has; without one, or when `USE_SMDEBUG` is false, nothing happens. The line stands
above the imports of frameworks.
"""

from smdebug.instrument.start import attach_by_environment

__all__ = ["job"]

job = attach_by_environment()
