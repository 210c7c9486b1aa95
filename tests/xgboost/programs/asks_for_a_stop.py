"""Another process that follows a run and requests a stop."""

from __future__ import annotations

import sys

from smdebug.trials import create_trial

if __name__ == "__main__":
    create_trial(sys.argv[1]).request_stop("by hand")
