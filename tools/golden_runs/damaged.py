"""The truth about damaged runs: which reads fail, how, and what `smdebug check` reports.

A damaged run is not stored. It is a copy of an intact golden run to which a damage is applied, so
that all of its other bytes are known to be right: every read has to return what the intact run
returns, or raise.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.golden_reads import apply_damage, load_truth, read_everything

from tools.golden_runs.recorder import write_truth


def _event_file(run: Path, number: int) -> Path:
    return sorted((run / "events").rglob("*.tfevents"))[number]


def _index_file(run: Path, number: int) -> Path:
    return sorted(path for path in (run / "index").rglob("*") if path.is_file())[number]


def _collections_file(run: Path, number: int) -> Path:
    return sorted((run / "collections").rglob("*.json"))[number]


# Name, intact run, which of its files, and what happens to it: a bit is flipped at, or all bytes
# are lost from, this part of the file; or all of it is gone.
_DAMAGES = (
    ("event_flipped_v2", "pytorch_v2", _event_file, 1, "flip", 0.5),
    ("event_truncated_v2", "pytorch_v2", _event_file, 0, "truncate", 0.9),
    ("event_missing_v2", "pytorch_v2", _event_file, 0, "missing", 0.0),
    ("event_length_v2", "pytorch_v2", _event_file, 0, "flip", 0.0),
    ("index_flipped_v2", "pytorch_v2", _index_file, 0, "flip", 0.2),
    ("index_footer_v2", "pytorch_v2", _index_file, 0, "flip", 0.8),
    ("index_truncated_v2", "pytorch_v2", _index_file, 0, "truncate", 0.5),
    ("index_empty_v2", "pytorch_v2", _index_file, 0, "truncate", 0.0),
    ("one_index_truncated_v2", "pytorch_killed_v2", _index_file, 1, "truncate", 0.5),
    ("one_index_flipped_v2", "pytorch_killed_v2", _index_file, 1, "flip", 0.2),
    ("collections_flipped_v2", "pytorch_v2", _collections_file, 0, "flip", 0.5),
    ("collections_truncated_v2", "pytorch_v2", _collections_file, 0, "truncate", 0.5),
    ("event_flipped_v1", "pytorch_v1", _event_file, 1, "flip", 0.5),
    ("event_truncated_v1", "pytorch_v1", _event_file, 0, "truncate", 0.9),
    ("event_missing_v1", "pytorch_v1", _event_file, 0, "missing", 0.0),
    ("index_flipped_v1", "pytorch_v1", _index_file, 1, "flip", 0.5),
    ("index_truncated_v1", "pytorch_v1", _index_file, 0, "truncate", 0.5),
    ("collections_flipped_v1", "pytorch_v1", _collections_file, 0, "flip", 0.5),
)


def write_damaged_runs(golden: Path) -> None:
    """Write the truth about damaged copies of the golden runs in a directory."""
    for name, intact, file_of, number, kind, part in _DAMAGES:
        source = golden / intact
        path = file_of(source, number)
        place = int(path.stat().st_size * part)
        damage: dict[str, Any] = {"file": path.relative_to(source).as_posix()}
        damage |= {kind: {"flip": [place, 2], "truncate": place, "missing": True}[kind]}
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder, "run")
            shutil.copytree(source, run)
            apply_damage(run, damage)
            failures = read_everything(run, load_truth(intact, golden))
            check = _check(run)
        truth = {"copy_of": intact, "damage": damage, "failures": failures, "check": check}
        write_truth(golden / f"damaged_{name}.json", truth)
        kinds = sorted(set(failures.values()))
        sys.stderr.write(f"{name}: {len(failures)} reads fail: {', '.join(kinds)}; {check}\n")


def _check(run: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "smdebug", "check", str(run), "--json"]
    ended = subprocess.run(command, capture_output=True, check=False, text=True)
    damages = json.loads(ended.stdout)["damages"] if ended.stdout else []
    files = sorted({damage["file"] for damage in damages})
    return {"status": ended.returncode, "files": files}
