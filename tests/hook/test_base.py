"""A hook for NumPy: the pipeline without the callbacks of a framework."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hook.numpy_hook import NumpyHook

from smdebug.config.collection import Collection
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.exceptions import (
    InvalidCollectionConfiguration,
    SMDebugRuntimeError,
    SMDebugTypeError,
    SMDebugValueError,
)
from smdebug.hook.module_api import current_hook, set_hook
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.keys import END_KEY
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.hook.hook import BaseHook
    from smdebug.trials import Trial

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
EVERY = SaveConfig(save_interval=1)


def close(hook: BaseHook) -> Trial:
    hook.close()
    return create_trial(hook.out_dir)


def test_offered_tensors_are_saved_by_schedule_and_collection(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, include_collections="weights", save_config={"save_interval": 2})
    weight = np.zeros(3)
    for number in range(5):
        hook.run(loss=np.float32(number), weight=weight, other=weight, gradient__weight=weight)
        weight += 1
    trial = close(hook)
    assert trial.tensor_names() == ["gradient/weight", "loss", "weight"]
    assert {step: value[0] for step, value in trial.tensor("weight").values().items()} == {
        0: 0, 2: 2, 4: 4,
    }  # fmt: skip
    assert [float(value) for value in trial.tensor("loss").values().values()] == [0, 2, 4]


def test_the_hook_of_the_process_is_the_last_that_was_made(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path)
    assert current_hook() is hook
    other = NumpyHook(tmp_path)
    assert current_hook() is other
    set_hook(hook)
    assert current_hook() is hook
    with pytest.raises(SMDebugTypeError):
        set_hook("hook")  # type: ignore[arg-type]


def test_no_files_before_the_first_save(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path / "run")
    hook.get_collection("mine").include("x")
    hook.set_mode(TRAIN)
    assert list(tmp_path.iterdir()) == []


def test_missing_out_dir_is_rejected() -> None:
    with pytest.raises(SMDebugRuntimeError, match="out_dir"):
        NumpyHook()


def test_an_empty_collection_is_refused_at_the_first_step(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path)
    hook.add_collection(Collection("mine"))
    with pytest.raises(InvalidCollectionConfiguration, match="mine"):
        hook.run()


def test_misspelled_collection_is_rejected_when_the_hook_is_created(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="Did you mean 'gradients'"):
        NumpyHook(tmp_path, include_collections=["gradient"])
    parameters: dict[str, Any] = {"save_interval": 1}
    entry = {"CollectionName": "gradient", "CollectionParameters": parameters}
    config = {"LocalPath": str(tmp_path), "CollectionConfigurations": [entry]}
    with pytest.raises(SMDebugValueError, match="Did you mean 'gradients'"):
        NumpyHook.create_from_json_file(config)
    # With a regex it is a collection of the user's own.
    parameters["include_regex"] = "^mine"
    hook = NumpyHook.create_from_json_file(config)
    hook.run(mine=np.float32(1))
    hook.close()
    assert create_trial(str(tmp_path)).tensor_names(collection="gradient") == ["mine"]


def test_a_collection_may_get_its_regex_after_the_hook_is_made(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, save_config=EVERY, include_collections=["relu"])
    hook.get_collection("relu").include("^relu")
    hook.run(relu_1=np.float32(1))
    hook.close()
    assert create_trial(str(tmp_path)).tensor_names(collection="relu") == ["relu_1"]


def test_an_empty_collection_is_a_value_error(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, include_collections=["relu"])
    with pytest.raises(ValueError, match="Collection relu has neither include_regex nor"):
        hook.run()


def test_only_requested_reductions_are_saved(tmp_path: Path) -> None:
    hook = NumpyHook(
        tmp_path, include_collections="weights", save_config=EVERY,
        reduction_config=ReductionConfig(["min"], ["max"], ["l2"]),
    )  # fmt: skip
    hook.run(weight=np.array([3.0, -4.0], np.float32))
    tensor = close(hook).tensor("weight")
    assert tensor.reduction_values(0) == {
        ("min", False): -4.0, ("max", True): 4.0, ("l2", False): 5.0,
    }  # fmt: skip
    assert tensor.values() == {}


def test_when_nan_saves_what_was_seen_before_and_what_comes_after(tmp_path: Path) -> None:
    schedule = SaveConfig(end_step=0, when_nan=["loss"])
    hook = NumpyHook(tmp_path, include_collections=["weights", "gradients"], save_config=schedule)
    for number in range(4):
        loss = np.float32(math.nan if number == 2 else 1.0)
        hook.run(weight=np.full(2, number), loss=loss, gradient__x=np.full(2, -number))
    trial = close(hook)
    assert {name: trial.tensor(name).steps() for name in trial.tensor_names()} == {
        "weight": [2], "loss": [2], "gradient/x": [2],
    }  # fmt: skip
    assert trial.tensor("weight").value(2).tolist() == [2, 2]


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_scalars_before_the_mode_is_set_do_not_take_the_first_step_from_it(
    tmp_path: Path, format: str
) -> None:
    hook = NumpyHook(tmp_path, save_config=EVERY, format=format)
    hook.save_scalar("learning_rate", 0.5)
    for mode in (TRAIN, EVAL):
        hook.set_mode(mode)
        hook.run(loss=1.0)
    trial = close(hook)
    assert trial.mode_modestep(0) == (TRAIN, 0)
    assert trial.steps(TRAIN) == [0]
    assert trial.steps(EVAL) == [0]
    assert trial.tensor("loss").steps() == [0, 1]
    assert trial.tensor("loss").steps(TRAIN) == [0]
    assert trial.tensor("scalar/learning_rate").steps() == [0]


def test_last_saved_step_counts_every_kind_of_save(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, save_config=SaveConfig(end_step=0))
    hook.set_mode(TRAIN)
    hook.run()
    hook.set_mode(EVAL)
    hook.run()
    hook.save_scalar("x", 1)
    hook.set_mode(TRAIN)
    # The step of training before the one of evaluation.
    hook.save_scalar("y", 1)
    hook.save_scalar("z", 1)
    hook.close()
    assert hook.stats().steps == 2
    assert hook.stats().saved_steps == 2


def test_current_step_continues_after_flush(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, save_config=EVERY, flush_seconds=1000)
    hook.run(loss=1.0)
    hook.flush()
    trial = create_trial(tmp_path)
    assert trial.steps() == [0]
    hook.save_scalar("x", 2.0)
    hook.flush()
    trial.refresh_data()
    assert trial.tensor_names(step=0) == ["loss", "scalar/x"]
    hook.close()


def test_failing_store_stops_only_saving(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "events").write_text("in the way")
    hook = NumpyHook(tmp_path, save_all=True, save_config=EVERY)
    for _ in range(3):
        hook.run(weight=np.ones(1000))
        hook.flush()
    hook.close()
    assert caplog.text.count("saving has stopped") == 1
    assert not (tmp_path / END_KEY).exists()


def test_after_a_failure_the_caches_of_adapters_are_cleared(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, save_all=True, save_config=EVERY)
    pipeline = hook._pipeline
    cache = pipeline.new_cache()
    hook.run(weight=np.ones(2))
    assert pipeline.current is not None
    plan = pipeline.current.plan
    assert plan is not None
    cache.put(plan, "weight", np.ones(1000))
    hook.run(weight=object())
    assert cache.peek(plan, "weight") is not None
    for _ in range(5):
        hook.run(weight=np.ones(2))
    assert cache.peek(plan, "weight") is None
    assert hook.stats().lost_steps == 6
    hook.close()


def test_unsupported_value_is_handled_like_any_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = NumpyHook(tmp_path, save_all=True, save_config=EVERY)
    hook.run(weight=np.ones(2))
    hook.run(weight=object())
    hook.run(weight=np.ones(2))
    trial = close(hook)
    assert caplog.text.count("saving has stopped") == 1
    assert trial.steps() == [0]


def test_dry_runs_touch_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = NumpyHook(tmp_path / "run", save_all=True, save_config=EVERY, dry_run=True)
    hook.run(weight=np.ones(2))
    hook.flush()
    hook.close()
    assert list(tmp_path.iterdir()) == []
    assert "would save 1 tensors, 16 B: weight (raw)" in caplog.text


def test_several_threads_may_save_scalars_at_once(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, save_config=EVERY)
    hook.run(loss=1.0)

    def save(worker: int) -> None:
        for number in range(50):
            hook.save_scalar(f"{worker}/{number}", worker * number)

    threads = [threading.Thread(target=save, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trial = close(hook)
    assert len(trial.tensor_names(collection="scalars")) == 200
    assert float(trial.tensor("scalar/3/49").value(0)[0]) == 147


# ---- whatever a script does

_MODES = st.sampled_from([TRAIN, EVAL, ModeKeys.PREDICT, ModeKeys.GLOBAL])
_SCHEDULES = st.builds(
    SaveConfigMode,
    save_interval=st.integers(1, 4),
    start_step=st.integers(0, 2),
    end_step=st.none() | st.integers(2, 6),
    save_steps=st.lists(st.integers(0, 8), max_size=2),
)
_CONFIGS = st.dictionaries(_MODES, _SCHEDULES).map(SaveConfig) | _SCHEDULES.map(SaveConfig.parse)
_ACTIONS = st.one_of(
    st.tuples(st.just("step"), _MODES),
    st.tuples(st.just("step"), _MODES),
    st.tuples(st.just("mode"), _MODES),
    st.tuples(st.just("scalar"), st.sampled_from("xy")),
    st.tuples(st.just("tensor"), st.sampled_from(["mine", "weights"])),
    st.tuples(st.just("flush"), st.none()),
)
_OFFERED = {"weight": "weights", "gradient/g": "gradients", "loss": "losses", "m": "mine"}


class Expected:
    """What the run of a script should hold, worked out by hand."""

    def __init__(self, configs: dict[str, SaveConfig]) -> None:
        self._configs = configs
        self.mode = ModeKeys.GLOBAL
        self.steps: list[tuple[ModeKeys, int]] = []
        self.values: dict[str, dict[int, int]] = {}

    def step(self, value: int) -> None:
        number = len(self.steps)
        counted = sum(mode is self.mode for mode, _ in self.steps)
        self.steps.append((self.mode, number if self.mode is ModeKeys.GLOBAL else counted))
        for name, collection in _OFFERED.items():
            if collection == "gradients" and self.mode in (EVAL, ModeKeys.PREDICT):
                continue
            if self._due(collection, number):
                self.put(name, number, value)

    def present(self) -> int | None:
        """The last step of the present mode."""
        wanted = [
            number
            for number, (mode, _) in enumerate(self.steps)
            if self.mode in (mode, ModeKeys.GLOBAL)
        ]
        return wanted[-1] if wanted else None

    def save_tensor(self, name: str, collection: str, number: int, value: int) -> None:
        if self._due(collection, number):
            self.put(name, number, value)

    def put(self, name: str, number: int, value: int) -> None:
        self.values.setdefault(name, {})[number] = value

    def _due(self, collection: str, number: int) -> bool:
        mode, mode_step = self.steps[number]
        return self._configs[collection].get_save_config(mode).should_save_step(mode_step)


@given(
    st.fixed_dictionaries({name: _CONFIGS for name in ("weights", "gradients", "losses", "mine")}),
    st.lists(_ACTIONS, max_size=30),
    st.sampled_from(["v1", "v2"]),
)
@settings(max_examples=40, deadline=None)
def test_run_contains_what_the_script_saved(
    configs: dict[str, SaveConfig], actions: list[tuple[str, Any]], format: str
) -> None:
    expected = Expected(configs)
    with tempfile.TemporaryDirectory() as out_dir:
        hook = NumpyHook(
            out_dir, include_collections=["weights", "gradients", "mine"], format=format
        )
        hook.get_collection("mine").include("^m$")
        for name, config in configs.items():
            hook.get_collection(name).save_config = config
        for value, (what, detail) in enumerate(actions):
            present = expected.present()
            if what in ("step", "mode"):
                hook.set_mode(detail)
                expected.mode = detail
            if what == "step":
                hook.run(**{name.replace("/", "__"): np.full(2, value) for name in _OFFERED})
                expected.step(value)
            elif what == "flush":
                hook.flush()
            elif what == "scalar" and present is not None:
                hook.save_scalar(detail, value)
                expected.put(f"scalar/{detail}", present, value)
            elif what == "tensor" and present is not None:
                hook.save_tensor(f"t_{detail}", np.full(3, value), detail)
                expected.save_tensor(f"t_{detail}", detail, present, value)
        hook.save_scalar("end", 1)
        trial = close(hook)
        # The first tensor of a run without steps belongs to one that never came.
        names = [name for name in trial.tensor_names() if name != "scalar/end"]
        found = {
            name: {step: int(each[0]) for step, each in trial.tensor(name).values().items()}
            for name in names
        }
        assert found == expected.values
        saved = {step for steps in expected.values.values() for step in steps}
        for step in saved:
            assert trial.mode_modestep(step) == expected.steps[step]
        end = set(trial.tensor("scalar/end").steps())
        assert hook.stats().saved_steps == len(saved | end)


def test_the_write_side_does_not_load_the_read_side() -> None:
    code = (
        "import sys, smdebug.hook.hook;"
        "unwanted = ('smdebug.trials', 'smdebug.rules', 'torch');"
        "print(*[name for name in sys.modules if name.startswith(unwanted)])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
