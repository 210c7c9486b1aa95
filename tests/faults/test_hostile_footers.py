"""A forged footer crashes no process: the author of a run can compute valid checksums."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.tally import amount

if TYPE_CHECKING:
    from tests.faults.tally import Tally

HERE = Path(__file__).parent
_SECONDS = 3600


@pytest.mark.parametrize("base", ["index", "other", "findings"])
def test_forged_footers_do_not_crash_the_process(base: str, tally: Tally) -> None:
    count, first = amount(5000, 250), 0
    wrong: list[str] = []
    seen: Counter[str] = Counter()
    while first < count:
        lines, end = read_footers(base, first, count)
        words = [line.split(" ", 2) for line in lines]
        seen.update(word[0] for word in words)
        wrong += [line[:300] for line in lines if line.startswith("unnamed")]
        if lines[-1:] == ["done"]:
            break
        begun = [word for word in words if word[0] == "begins"]
        assert begun, end
        # The others are tried in a process of their own.
        first = int(begun[-1][1]) + 1
        wrong.append(f"{' '.join(begun[-1])[:300]}: {end}")
    tally.add(
        6, "footers that lie, under a seal that fits", count, count - len(wrong),
        f"{base}: {seen['refused']} refused, {seen['read']} read",
    )  # fmt: skip
    assert wrong == []
    assert seen["refused"]


def read_footers(base: str, first: int, end: int) -> tuple[list[str], str]:
    """What a process says that reads some of them, and how it ended."""
    command = [
        sys.executable, "-m", "tests.faults.programs.read_footers", base, str(first), str(end),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, cwd=HERE.parent.parent, env=environment, capture_output=True, text=True,
        timeout=_SECONDS, check=False,
    )  # fmt: skip
    return done.stdout.splitlines(), f"{done.returncode}: {done.stderr[-600:]}"
