"""Instrument a script by being imported: one line, and no other code changes.

import smdebug.auto

The JSON config that `SMDEBUG_CONFIG_FILE_PATH` names, or that of a SageMaker job, says what is
saved; without one, or when `USE_SMDEBUG` is false, nothing happens. The line belongs above the
imports of frameworks.
"""

from smdebug.instrument.start import instrument_from_environment

__all__ = ["job"]

job = instrument_from_environment()
