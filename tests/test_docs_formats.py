"""What the page of the formats says is so: its program reads a run without this library."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.pages import program, text_of

from smdebug import create_trial
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.format.dtypes import STRING, dtype_name, dtype_of_number
from smdebug.storage.v2.index import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/formats.md"


def test_the_program_reads_what_a_trial_reads(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program("docs/formats.md", "core")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tensor = create_trial(str(tmp_path / "runs" / "made")).tensor("fc.weight")
    said = "fc.weight 7 {b'mode_step': b'7', b'mode': b'1'} "
    assert done.stdout == f"{said}{tensor.value(7).tolist()}\n"


def test_every_element_type_has_its_number() -> None:
    cells = re.findall(r"\| (\d+) \| (?:`(\w+)`|strings) (?=\|)", text_of(PAGE))
    told = {int(number): name for number, name in cells}
    assert told.pop(STRING) == ""
    assert {number: dtype_name(dtype_of_number(number)) for number in told} == told
    assert len(told) == 17


def test_every_mode_has_its_number() -> None:
    assert ", ".join(f"{mode.name} {mode.value}" for mode in ModeKeys) in text_of(PAGE)


def test_every_column_is_there() -> None:
    rows = [line for line in text_of(PAGE).splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    # Of the reductions the first and the last.
    assert set(SCHEMA.names) - set(REDUCTION_NAMES) <= told
