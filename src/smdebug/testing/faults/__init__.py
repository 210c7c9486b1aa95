"""The fault gym: real faults planted in real PyTorch trainings, and healthy trainings beside them.

Every fault says which rule must find it; on the healthy trainings no rule may find anything.
`python -m smdebug.testing.faults` trains them all and prints the table.

Example:
    >>> from smdebug.testing.faults import run_gym  # doctest: +SKIP
    >>> print(run_gym("/tmp/gym", only="dead relu"))  # doctest: +SKIP
"""

from smdebug.testing.faults.gym import run_fault, run_gym, run_healthy
from smdebug.testing.faults.healthy import HEALTHY
from smdebug.testing.faults.planted import FAULTS
from smdebug.testing.faults.table import GymTable
from smdebug.testing.faults.training import Fault, Training

__all__ = [
    "FAULTS",
    "HEALTHY",
    "Fault",
    "GymTable",
    "Training",
    "run_fault",
    "run_gym",
    "run_healthy",
]
