"""What all commands have in common: how they end, and what they say of a wrong path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.command import smdebug, started

from smdebug.cli.terminal import harmless
from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path


def test_nobody_reads_the_output(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with started(tmp_path, "check", "run") as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        # Not 1, which says that there is damage.
        assert command.wait(timeout=60) == 141
        assert command.stderr.read() == ""


def test_a_path_that_is_no_run(tmp_path: Path) -> None:
    make_run(tmp_path / "first-run")
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thing").touch()
    for name in ("show", "layers", "rules", "check", "compact"):
        for path, said in (
            ("file", "got 'file', which is a file"),
            ("first-rum", "which does not exist; did you mean first-run?"),
            ("other", "got 'other'"),
            ("s3://", "got 's3:'"),
        ):
            refused = smdebug(tmp_path, name, path, code=2)
            assert (refused.stdout, len(refused.stderr.splitlines())) == ("", 1)
            assert said in refused.stderr


def test_a_name_stays_on_its_line() -> None:
    assert harmless("a\nb\tc\x1b[2J ü") == "a\\nb\\tc\\x1b[2J ü"
