"""Write the golden runs of one framework: `python -m tools.golden_runs pytorch tests/golden`.

Run it at the root of the repository, in an environment with the framework, and give a relative
directory: a run must not contain a path of the machine it was written on.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from tools.golden_runs.jobs import FRAMEWORKS, jobs_of, run_job, run_part


def main() -> None:
    """Write the runs and the truth about them."""
    parser = argparse.ArgumentParser(prog="python -m tools.golden_runs", description=__doc__)
    parser.add_argument("framework", choices=[*FRAMEWORKS, "damaged"])
    parser.add_argument("directory", type=Path, help="such as tests/golden")
    parser.add_argument("--only", action="append", metavar="RUN", help="this run only")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.getLogger("smdebug").setLevel(logging.ERROR)
    if given.directory.is_absolute():
        parser.error("directory must be relative")
    if given.framework == "damaged":
        # It reads the golden runs, which the others write.
        from tools.golden_runs.damaged import write_damaged_runs

        write_damaged_runs(given.directory)
        return
    if given.run is not None:
        run_part(given.framework, given.directory, given.run, given.part)
        return
    given.directory.mkdir(parents=True, exist_ok=True)
    for job in jobs_of(given.framework):
        if given.only is None or job.name in given.only:
            run_job(given.framework, given.directory, job)


if __name__ == "__main__":
    main()
