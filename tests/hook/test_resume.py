"""Resumed jobs: after the last step of the run, at a checkpoint, at a step set by the user."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyAdapter, NumpyHook

from smdebug.config.json_config import parse_json_config
from smdebug.exceptions import SMDebugRuntimeError, SMDebugTypeError, SMDebugValueError
from smdebug.hook.worker import Worker
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.keys import END_KEY
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials import Trial

TRAIN, EVAL, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL
EVERY = {"save_interval": 1}
FORMATS = pytest.mark.parametrize("format", ["v1", "v2"])


class RankedAdapter(NumpyAdapter):
    """One of several workers; it may find out which only later."""

    rank, ranks = 0, 2

    def worker(self) -> Worker:
        return Worker(f"worker_{self.rank}", self.ranks, self.rank == 0)


def run(hook: NumpyHook, modes: list[ModeKeys], offset: float = 0.0) -> None:
    """Run steps with the step number as loss."""
    for mode in modes:
        hook.set_mode(mode)
        hook.run(loss=np.float32(hook.step + 1 + offset))


def crash(hook: NumpyHook) -> None:
    """Leaves a run as a process that is killed after everything was published."""
    hook.flush()
    assert hook._pipeline.run.output is not None
    hook._pipeline.run.output.close(end=False)
    hook._pipeline.active = False
    hook._pipeline.adapter.detach()


def seen(trial: Trial) -> dict[int, Any]:
    values = trial.tensor("loss").values()
    return {step: (*trial.mode_modestep(step), float(value)) for step, value in values.items()}


def expected(modes: list[ModeKeys], offset: float = 0.0) -> dict[int, Any]:
    return {
        step: (mode, step if mode is GLOBAL else modes[:step].count(mode), step + offset)
        for step, mode in enumerate(modes)
    }


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint directory that a configuration names."""
    directory = tmp_path / "checkpoints"
    config = tmp_path / "checkpoint_config.json"
    config.write_text(json.dumps({"LocalPath": str(directory)}), encoding="utf-8")
    monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(config))
    directory.mkdir()
    return directory


# ---- after the last step of the run


@FORMATS
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "crashed"])
def test_run_is_resumed(tmp_path: Path, format: str, finished: bool) -> None:
    modes = [TRAIN] * 5 + [EVAL] * 2 + [TRAIN] * 3
    first = NumpyHook(tmp_path, save_config=EVERY, format=format)
    run(first, modes)
    first.close() if finished else crash(first)
    assert (tmp_path / END_KEY).exists() == finished
    second = NumpyHook(tmp_path, save_config=EVERY, format=format, resume=True)
    assert (second.step, second.last_saved_step) == (9, 9)
    assert second.mode_steps == {GLOBAL: 9, TRAIN: 7, EVAL: 1}
    # Nothing is changed before there is something new.
    assert (tmp_path / END_KEY).exists() == finished
    more = [TRAIN] * 2 + [EVAL] * 3
    run(second, more)
    second.flush()
    assert not (tmp_path / END_KEY).exists()
    second.close()
    assert (tmp_path / END_KEY).exists()
    assert seen(create_trial(str(tmp_path))) == expected(modes + more)


@pytest.mark.parametrize("made", [True, False])
def test_without_a_run_steps_start_at_zero(tmp_path: Path, made: bool) -> None:
    place = tmp_path if made else tmp_path / "missing"
    hook = NumpyHook(place, save_config=EVERY, resume=True)
    assert (hook.step, hook.mode_steps, hook.last_saved_step) == (-1, {GLOBAL: -1}, None)
    assert place.exists() == made
    run(hook, [TRAIN] * 2)
    hook.close()
    assert seen(create_trial(str(place))) == expected([TRAIN] * 2)


def test_without_resume_a_finished_run_is_rejected_with_suggestions(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, save_config=EVERY)
    run(hook, [TRAIN])
    hook.close()
    with pytest.raises(SMDebugRuntimeError, match=r"finished run.*resume=True"):
        NumpyHook(tmp_path, save_config=EVERY)


def test_resume_is_a_bool_and_a_key_of_the_json_config(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="resume"):
        NumpyHook(tmp_path, resume="perhaps")  # type: ignore[arg-type]
    job = parse_json_config({"LocalPath": "/tmp/x", "HookParameters": {"resume": "true"}})
    assert job.options.resume is True


def test_the_format_of_the_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, format in enumerate(["v1", "v2"]):
        place = tmp_path / format
        first = NumpyHook(place, save_config=EVERY, format=format)
        run(first, [TRAIN])
        first.close()
        monkeypatch.setenv("SMDEBUG_FORMAT", ["v2", "v1"][number])
        second = NumpyHook(place, save_config=EVERY, resume=True)
        run(second, [TRAIN])
        second.close()
        names = {path.suffix for path in (place / "index").rglob("*") if path.is_file()}
        assert names == {".json" if format == "v1" else ".parquet"}
        assert seen(create_trial(str(place))) == expected([TRAIN] * 2)
    with pytest.raises(SMDebugValueError, match=r'Cannot resume.*its format is "v2"'):
        NumpyHook(tmp_path / "v2", resume=True, format="v1")
    # The other way round works: the newer format comes first.
    third = NumpyHook(tmp_path / "v1", save_config=EVERY, resume=True, format="v2")
    third.step = 0
    run(third, [TRAIN] * 2, offset=0.5)
    third.close()
    values = create_trial(str(tmp_path / "v1")).tensor("loss").values()
    assert {step: float(value) for step, value in values.items()} == {0: 0, 1: 1.5, 2: 2.5}


def test_unreadable_run_is_not_resumed(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, save_config=EVERY)
    run(hook, [TRAIN])
    hook.close()
    (file,) = (tmp_path / "index").rglob("*.parquet")
    file.write_bytes(b"nothing")
    with pytest.raises(SMDebugRuntimeError, match=f"cannot be read.*{file.name}"):
        NumpyHook(tmp_path, resume=True)


@FORMATS
def test_names_that_only_the_first_job_saved_stay_in_their_collections(
    tmp_path: Path, format: str
) -> None:
    first = NumpyHook(tmp_path, save_config=EVERY, format=format)
    run(first, [TRAIN])
    first.save_tensor("batch", np.zeros(2), "mine")
    first.close()
    second = NumpyHook(tmp_path, save_config=EVERY, format=format, resume=True)
    run(second, [TRAIN])
    second.close()
    trial = create_trial(str(tmp_path))
    assert trial.tensor_names(collection="mine") == ["batch"]
    assert trial.tensor("batch").steps() == [0]
    assert trial.tensor("loss").steps() == [0, 1]


def test_scalar_before_the_first_step_belongs_to_it(tmp_path: Path) -> None:
    first = NumpyHook(tmp_path, save_config=EVERY)
    run(first, [TRAIN] * 3)
    first.close()
    second = NumpyHook(tmp_path, save_config=EVERY, resume=True)
    second.save_scalar("rate", 0.5)
    run(second, [TRAIN])
    second.close()
    trial = create_trial(str(tmp_path))
    assert trial.tensor("scalar/rate").steps() == [3]
    assert trial.mode_modestep(3) == (TRAIN, 3)


def test_rules_evaluate_only_this_job(tmp_path: Path) -> None:
    first = NumpyHook(tmp_path, save_config=EVERY)
    for loss in (1.0, np.nan, 1.0):
        first.run(loss=np.float32(loss))
    crash(first)
    second = NumpyHook(tmp_path, save_config=EVERY, resume=True, rules=["NonFinite"])
    run(second, [GLOBAL] * 3)
    second.close()
    assert second.findings() == []
    assert second.step == 5


# ---- several workers


def ranked(tmp_path: Path, rank: int, ranks: int = 2, **options: Any) -> NumpyHook:
    adapter = type("Ranked", (RankedAdapter,), {"rank": rank, "ranks": ranks})
    kind = type("RankedHook", (NumpyHook,), {"adapter_class": adapter})
    hook = kind(tmp_path, save_config=EVERY, include_workers="all", **options)
    assert isinstance(hook, NumpyHook)
    return hook


def become(hook: NumpyHook, rank: int, ranks: int) -> None:
    adapter = hook._pipeline.adapter
    assert isinstance(adapter, RankedAdapter)
    adapter.rank, adapter.ranks = rank, ranks


@FORMATS
def test_workers_resume_after_the_last_common_step(tmp_path: Path, format: str) -> None:
    for rank, steps in ((0, 6), (1, 4)):
        hook = ranked(tmp_path, rank, format=format)
        run(hook, [TRAIN] * 3 + [EVAL] * (steps - 3))
        crash(hook)
    for rank in (0, 1):
        hook = ranked(tmp_path, rank, format=format, resume=True)
        assert (hook.step, hook.mode_steps) == (3, {GLOBAL: 3, TRAIN: 2, EVAL: 0})
        run(hook, [EVAL] * 4)
        hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.workers() == ["worker_0", "worker_1"]
    for rank in (0, 1):
        values = trial.tensor("loss").values(worker=f"worker_{rank}")
        assert {step: float(value) for step, value in values.items()} == {n: n for n in range(8)}


def test_worker_that_evaluates_alone_has_additional_steps(tmp_path: Path) -> None:
    chief = ranked(tmp_path, 0)
    run(chief, [TRAIN] * 3 + [EVAL] * 2 + [TRAIN] * 3)
    crash(chief)
    other = ranked(tmp_path, 1)
    run(other, [TRAIN] * 5)
    crash(other)
    chief = ranked(tmp_path, 0, resume=True)
    assert (chief.step, chief.mode_steps) == (6, {GLOBAL: 6, TRAIN: 4, EVAL: 1})
    other = ranked(tmp_path, 1, resume=True)
    assert (other.step, other.mode_steps) == (4, {GLOBAL: 4, TRAIN: 4})


def test_workers_of_a_larger_job_are_ignored(tmp_path: Path) -> None:
    for rank, steps in ((0, 9), (1, 8), (2, 3)):
        hook = ranked(tmp_path, rank, 3)
        run(hook, [TRAIN] * steps)
        crash(hook)
    assert ranked(tmp_path, 0, 3, resume=True).step == 2
    assert ranked(tmp_path, 0, 2, resume=True).step == 7
    # One that is alone has only its own steps.
    assert ranked(tmp_path, 0, 1, resume=True).step == 8
    # One that is new begins where the others do.
    assert ranked(tmp_path, 3, 4, resume=True).step == 2


def test_rank_may_be_known_late(tmp_path: Path) -> None:
    for rank, steps in ((0, 6), (1, 4)):
        hook = ranked(tmp_path, rank)
        run(hook, [TRAIN] * steps)
        crash(hook)
    hook = ranked(tmp_path, 0, 1, resume=True)
    assert hook.step == 5
    become(hook, 1, 2)
    run(hook, [TRAIN])
    assert (hook.step, hook.mode_steps[TRAIN]) == (4, 4)
    crash(hook)
    # What a user said stays.
    hook = ranked(tmp_path, 0, 1, resume=True)
    hook.step = 1
    become(hook, 1, 2)
    run(hook, [TRAIN])
    assert (hook.step, hook.mode_steps[TRAIN]) == (2, 2)
    crash(hook)


# ---- by hand


@FORMATS
def test_rewind_replaces_repeated_steps(tmp_path: Path, format: str) -> None:
    hook = NumpyHook(tmp_path, save_config=EVERY, format=format)
    run(hook, [TRAIN] * 4 + [EVAL] * 2 + [TRAIN] * 3)
    assert hook.last_saved_step == 7
    hook.step = 4
    assert hook.step == 4
    assert hook.last_saved_step is None
    assert hook.mode_steps == {GLOBAL: 4, TRAIN: 3, EVAL: 0}
    again = [EVAL] + [TRAIN] * 5
    run(hook, again, offset=0.5)
    hook.close()
    kept = expected([TRAIN] * 4 + [EVAL], 0.0)
    new = expected([TRAIN] * 4 + [EVAL] + again, 0.5)
    assert seen(create_trial(str(tmp_path))) == {**new, **kept}


@FORMATS
def test_the_step_in_progress_is_handed_over_first(tmp_path: Path, format: str) -> None:
    hook = NumpyHook(tmp_path, save_config=EVERY, format=format)
    run(hook, [TRAIN] * 3)
    hook.save_scalar("x", 2.0)
    hook.step = 0
    hook.save_scalar("y", 1.0)
    run(hook, [TRAIN])
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.tensor("scalar/x").steps() == [2]
    assert trial.tensor("scalar/y").steps() == [1]
    assert trial.tensor("loss").steps() == [0, 1, 2]


@FORMATS
@pytest.mark.parametrize("resume", [True, False])
def test_new_process_restores_modes_from_the_run(tmp_path: Path, format: str, resume: bool) -> None:
    modes = [TRAIN] * 5 + [EVAL] * 3 + [TRAIN] * 4
    hook = NumpyHook(tmp_path, save_config=EVERY, format=format)
    run(hook, modes)
    crash(hook)
    hook = NumpyHook(tmp_path, save_config=EVERY, format=format, resume=resume)
    hook.step = 6
    assert (hook.step, hook.last_saved_step) == (6, 6)
    assert hook.mode_steps == {GLOBAL: 6, TRAIN: 4, EVAL: 1}
    run(hook, modes[7:] + [TRAIN] * 2)
    hook.close()
    assert seen(create_trial(str(tmp_path))) == expected([*modes, TRAIN, TRAIN])


def test_job_goes_back_to_steps_of_an_earlier_job(tmp_path: Path) -> None:
    modes = [TRAIN] * 5 + [EVAL] * 3 + [TRAIN] * 4
    hook = NumpyHook(tmp_path, save_config=EVERY)
    run(hook, modes)
    crash(hook)
    hook = NumpyHook(tmp_path, save_config=EVERY)
    hook.step = 11
    run(hook, [TRAIN] * 3)
    hook.step = 5
    assert hook.mode_steps == {GLOBAL: 5, TRAIN: 4, EVAL: 0}
    hook.step = -1
    assert (hook.step, hook.last_saved_step) == (-1, None)
    run(hook, [EVAL])
    assert hook.mode_steps[EVAL] == 0
    crash(hook)


@pytest.mark.parametrize(
    ("value", "error"), [(True, SMDebugTypeError), ("7", SMDebugTypeError), (-2, SMDebugValueError)]
)
def test_invalid_step_is_rejected_and_changes_nothing(
    tmp_path: Path, value: Any, error: type[Exception]
) -> None:
    hook = NumpyHook(tmp_path, save_config=EVERY)
    run(hook, [TRAIN] * 2)
    with pytest.raises(error, match="step must"):
        hook.step = value
    assert hook.step == 1
    hook.close()


# ---- at a checkpoint


def entries_of(directory: Path) -> Any:
    return json.loads((directory / "metadata.json").read_text(encoding="utf-8"))


def save_checkpoint(directory: Path, hook: NumpyHook) -> None:
    # As if training had taken a while: otherwise a step may be over before it is time to look.
    checkpoints = hook._pipeline.run.resume._checkpoints
    if checkpoints is not None:
        checkpoints._next_check = checkpoints._next_scan = checkpoints._next_record = 0.0
    (directory / f"{hook.step}.pt").write_text("x" * (hook.step + 1), encoding="utf-8")


@FORMATS
def test_job_resumes_after_its_checkpoint(tmp_path: Path, checkpoints: Path, format: str) -> None:
    out = tmp_path / "run"
    hook = NumpyHook(out, save_config={"save_interval": 2}, format=format, flush_seconds=3600)
    run(hook, [TRAIN] * 5)
    save_checkpoint(checkpoints, hook)
    run(hook, [EVAL] * 2)
    # It must be in the run by now: it is not saved again. In format v1 the next one may be, too.
    steps = create_trial(str(out)).tensor("loss").steps()
    assert steps in ([0, 2, 4], [0, 2, 4, 5][: None if format == "v1" else 3])
    assert entries_of(checkpoints) == [
        {
            "training-run": 0,
            "latest-global-step-saved": 4,
            "latest-global-step-seen": 4,
            "latest-mode-step": {"GLOBAL": 4, "TRAIN": 4, "EVAL": -1},
        }
    ]
    crash(hook)
    hook = NumpyHook(out, save_config={"save_interval": 2}, format=format)
    assert (hook.step, hook.last_saved_step) == (4, 4)
    assert hook.mode_steps == {GLOBAL: 4, TRAIN: 4, EVAL: -1}
    run(hook, [EVAL] * 2 + [TRAIN] * 4)
    save_checkpoint(checkpoints, hook)
    hook.close()
    # The checkpoint at the end counts, too.
    assert entries_of(checkpoints)[1:] == [
        {
            "training-run": 1,
            "latest-global-step-saved": 10,
            "latest-global-step-seen": 10,
            "latest-mode-step": {"GLOBAL": 10, "TRAIN": 8, "EVAL": 1},
        }
    ]
    everything = expected([TRAIN] * 5 + [EVAL] * 2 + [TRAIN] * 4)
    assert seen(create_trial(str(out))) == {
        step: each for step, each in everything.items() if each[1] % 2 == 0
    }
    with pytest.raises(SMDebugRuntimeError, match="finished run"):
        NumpyHook(out)


def test_checkpoint_takes_precedence_over_the_run(tmp_path: Path, checkpoints: Path) -> None:
    hook = NumpyHook(tmp_path / "run", save_config=EVERY)
    run(hook, [TRAIN] * 3)
    save_checkpoint(checkpoints, hook)
    run(hook, [TRAIN] * 4)
    hook._pipeline.run.resume.stop()
    hook.close()
    hook = NumpyHook(tmp_path / "run", save_config=EVERY, resume=True)
    assert hook.step == 2
    # By hand, it is what the run says of that step.
    hook.step = 5
    assert hook.mode_steps == {GLOBAL: 5, TRAIN: 5}
    hook.step = 2
    run(hook, [TRAIN] * 5, offset=0.5)
    hook.close()
    values = create_trial(str(tmp_path / "run")).tensor("loss").values()
    assert [float(value) for value in values.values()] == [0, 1, 2, 3.5, 4.5, 5.5, 6.5, 7.5]


def test_invalid_metadata_does_not_prevent_start(
    tmp_path: Path, checkpoints: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (checkpoints / "metadata.json").write_text('[{"training-run"', encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        hook = NumpyHook(tmp_path / "run", save_config=EVERY)
    assert str(checkpoints / "metadata.json") in caplog.text
    assert hook.step == -1
    run(hook, [TRAIN] * 2)
    hook.close()
    assert seen(create_trial(str(tmp_path / "run"))) == expected([TRAIN] * 2)


def test_dry_run_resumes_and_writes_nothing(tmp_path: Path, checkpoints: Path) -> None:
    hook = NumpyHook(tmp_path / "run", save_config=EVERY)
    run(hook, [TRAIN] * 3)
    save_checkpoint(checkpoints, hook)
    hook.close()
    before = entries_of(checkpoints)
    hook = NumpyHook(tmp_path / "run", save_config=EVERY, dry_run=True)
    assert hook.step == 2
    run(hook, [TRAIN])
    save_checkpoint(checkpoints, hook)
    run(hook, [TRAIN])
    hook.close()
    assert entries_of(checkpoints) == before


def test_only_the_first_worker_writes_metadata_and_all_publish(
    tmp_path: Path, checkpoints: Path
) -> None:
    for rank in (1, 0):
        hook = ranked(tmp_path / "run", rank, flush_seconds=3600)
        run(hook, [TRAIN] * 3)
        save_checkpoint(checkpoints, hook)
        (checkpoints / f"rank_{rank}.pt").write_text("x", encoding="utf-8")
        run(hook, [TRAIN])
        assert (checkpoints / "metadata.json").exists() == (rank == 0)
        index = list((tmp_path / "run" / "index").rglob(f"*worker_{rank}.parquet"))
        assert len(index) == 1
        crash(hook)
    for rank in (0, 1):
        assert ranked(tmp_path / "run", rank).step == 2


def test_run_inside_the_checkpoint_directory_is_not_a_checkpoint(
    tmp_path: Path, checkpoints: Path
) -> None:
    hook = NumpyHook(checkpoints / "run", save_config=EVERY, export_tensorboard=True)
    for _ in range(3):
        run(hook, [TRAIN])
        hook.flush()
        checkpoint = hook._pipeline.run.resume._checkpoints
        assert checkpoint is not None
        checkpoint._next_check = checkpoint._next_scan = checkpoint._next_record = 0.0
    hook.close()
    assert not (checkpoints / "metadata.json").exists()
