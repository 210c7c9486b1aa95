"""A state machine that drives the public API of a hook in any order against a plain model.

`HookMachine` knows the API that every hook has. A `Driver` knows one adapter: how to make its hook
and how to run a step, and it computes in numpy what the hook must have seen. `ModelHook` and
`ModelRun` are the specification: which step a tensor belongs to, what is saved of it, and what a
rewind replaces. Nothing here looks into a hook.
"""

from __future__ import annotations

import copy
import re
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from smdebug import ReductionConfig, SaveConfig, SaveConfigMode, modes
from smdebug.core.collection import Collection
from smdebug.exceptions import SMDebugRuntimeError
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from smdebug.trials import Trial

Array = npt.NDArray[Any]
# The name and the value of a tensor that a step has computed.
Observed = tuple[str, Array]

TRAIN, EVAL, PREDICT, GLOBAL = modes.TRAIN, modes.EVAL, modes.PREDICT, modes.GLOBAL
# Collections of numbers are saved without reductions (docs/configuration.md).
NUMBERS = frozenset({"losses", "metrics", "scalars", "sm_metrics"})
# Never saved in EVAL and PREDICT.
TRAINING_ONLY = frozenset({"gradients", "optimizer_variables"})


class Driver(Protocol):
    """Drives one adapter; all knowledge of the adapter is here.

    Attributes:
        regexes: regexes of tensors that a step has, for collections to include.
        when_nan: regexes of tensors that are not finite when a step is asked to have a NaN.
        separate_backward: whether a backward pass can be a call of its own.
    """

    regexes: tuple[str, ...]
    when_nan: tuple[str, ...]
    separate_backward: bool

    def make_hook(self, out_dir: str, **options: Any) -> Any:
        """Make a hook and attach it to the first module."""

    def add_module(self, hook: Any) -> None:
        """Attach the hook to a second module."""

    def forward(self, hook: Any, module: int, seed: int, nan: bool, fail: bool) -> list[Observed]:
        """Run one forward pass, which is a step, and its loss.

        Args:
            hook: the hook; a closed one takes no notice.
            module: 0 for the first module, 1 for the second.
            seed: makes the values of this step differ from those of others.
            nan: something in the step is not finite.
            fail: the pass raises an exception halfway; the driver catches it.

        Returns:
            What the hook must have seen.
        """

    def backward(self, hook: Any) -> list[Observed]:
        """Run the backward pass of the last forward pass; it may be run again."""

    def tensor(self, array: Array) -> Any:
        """Convert an array to what a user of the framework saves by hand."""


# ---- the configuration, as plain values


class Schedule(NamedTuple):
    """A `SaveConfigMode`, as plain numbers."""

    interval: int = 1
    start: int = 0
    end: int | None = None
    steps: tuple[int, ...] = ()
    when_nan: tuple[str, ...] = ()

    def is_due(self, mode_step: int) -> bool:
        """Return whether the schedule has a step."""
        in_range = self.start <= mode_step and (self.end is None or mode_step < self.end)
        return mode_step in self.steps or (in_range and mode_step % self.interval == 0)

    def config(self) -> SaveConfigMode:
        """Return what the API takes."""
        return SaveConfigMode(
            self.interval, self.start, self.end, list(self.steps), list(self.when_nan)
        )


Schedules = dict[modes, Schedule]  # A mode that is missing is left to the hook.


def save_config(schedules: Schedules) -> SaveConfig:
    """Return what the API takes."""
    return SaveConfig({mode: schedule.config() for mode, schedule in schedules.items()})


class Reduced(NamedTuple):
    """A `ReductionConfig`, as plain names: those of the index, such as `abs_mean` and `l2`."""

    names: tuple[str, ...]
    raw: bool = False

    def config(self) -> ReductionConfig:
        """Return what the API takes."""
        norms = [name for name in self.names if name in ("l1", "l2")]
        absolute = [name for name in self.names if name.startswith("abs_")]
        plain = [name for name in self.names if name not in {*norms, *absolute}]
        return ReductionConfig(
            plain, [name.removeprefix("abs_") for name in absolute], norms,
            save_raw_tensor=self.raw,
        )  # fmt: skip


RAW = Reduced((), raw=True)


@dataclass
class ModelCollection:
    """A collection: which tensors, when, and what of them; None is left to the hook."""

    name: str
    include: list[str] = field(default_factory=list)
    schedules: Schedules = field(default_factory=dict)
    reduced: Reduced | None = None

    def matches(self, name: str) -> bool:
        """Return whether a tensor belongs to the collection."""
        return any(re.search(regex, name) for regex in self.include)


# ---- the run that must come out


class Stamp(NamedTuple):
    """A step: its number over all modes, its mode, its number in the mode."""

    number: int
    mode: modes
    mode_step: int


class Saved(NamedTuple):
    """What is saved of one tensor at one step; `stamps` as `ModelRun` has them."""

    raw: Array | None
    reductions: dict[str, float]
    stamps: set[Stamp]


REDUCTIONS: dict[str, Any] = {
    "min": np.min, "max": np.max, "mean": np.mean, "std": np.std, "variance": np.var,
    "sum": np.sum, "prod": np.prod, "median": np.median,
    "l1": lambda x: np.sum(np.abs(x)), "l2": lambda x: np.sqrt(np.sum(np.square(x))),
    "nans": lambda x: np.sum(np.isnan(x)), "infs": lambda x: np.sum(np.isinf(x)),
    "zeros": lambda x: np.sum(x == 0),
}  # fmt: skip
REDUCTION_NAMES = [*REDUCTIONS, *(f"abs_{name}" for name in REDUCTIONS)]


def saved_of(array: Array, reduced: Iterable[Reduced]) -> Saved:
    """Compute what is saved of a tensor, in float64."""
    reduced = list(reduced)
    exact = array.astype(np.float64)
    numbers = {}
    for name in {name for each in reduced for name in each.names}:
        operand = np.abs(exact) if name.startswith("abs_") else exact
        numbers[name] = float(REDUCTIONS[name.removeprefix("abs_")](operand))
    return Saved(array if any(each.raw for each in reduced) else None, numbers, set())


class ModelRun:
    """What the run in a directory must hold.

    Attributes:
        steps: by number, what is saved of each tensor.
        stamps: by number, the step in its mode. There is more than one where a tensor was saved
            before its step began, in one mode, and the mode changed: which one the run shows is not
            specified until the step begins.
        rewound: whether a step was made again, so that older steps may follow newer ones.
    """

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, Saved]] = {}
        self.stamps: dict[int, set[Stamp]] = {}
        self.rewound = False

    def put(self, stamps: set[Stamp], name: str, saved: Saved) -> None:
        """Save a tensor; what was saved of it at the step before is replaced."""
        (number,) = {stamp.number for stamp in stamps}
        self.steps.setdefault(number, {})[name] = saved._replace(stamps=stamps)
        self.stamps[number] = stamps

    def compare(self, trial: Trial) -> None:
        """Fail if a trial has anything else than this."""
        assert trial.steps() == sorted(self.steps)
        rows = {(row["step"], row["tensor"]): row for row in trial.to_arrow().to_pylist()}
        names = sorted({name for tensors in self.steps.values() for name in tensors})
        assert sorted(rows) == sorted((n, name) for n, each in self.steps.items() for name in each)
        assert trial.tensor_names() == names
        for name in names:
            values = trial.tensor(name).values()
            for number in (n for n, each in self.steps.items() if name in each):
                saved = self.steps[number][name]
                place = f"{name} at step {number}"
                assert (number in values) == (saved.raw is not None), f"raw value of {place}"
                if saved.raw is not None:
                    value = values[number]
                    assert (value.dtype, value.shape) == (saved.raw.dtype, saved.raw.shape), place
                    np.testing.assert_array_equal(value, saved.raw, place)
                row = rows[number, name]
                found = {key: row[key] for key in REDUCTION_NAMES if row.get(key) is not None}
                assert found.keys() == saved.reductions.keys(), f"reductions of {place}"
                assert found == pytest.approx(saved.reductions, rel=1e-5, nan_ok=True), place
                stamp = Stamp(number, modes[row["mode"]], row["mode_step"])
                assert stamp in saved.stamps | self.stamps[number], place
        for number, stamps in self.stamps.items():
            found_mode = trial.mode_modestep(number)
            assert found_mode in {(each.mode, each.mode_step) for each in stamps}, number

    def in_order(self) -> list[Stamp]:
        """Return the steps."""
        return sorted((min(each) for each in self.stamps.values()), key=lambda each: each.number)

    @property
    def is_gapless(self) -> bool:
        """Whether the run alone says of every step which mode it had."""
        whole = sorted(self.steps) == list(range(len(self.steps)))
        return whole and not self.rewound and all(len(each) == 1 for each in self.stamps.values())


# ---- the hook that writes it


class Present(NamedTuple):
    """The step in progress, with the configuration it began with."""

    stamp: Stamp
    collections: dict[str, ModelCollection]
    included: set[str]
    observed: dict[str, Array]
    triggered: set[Schedule]


class Early(NamedTuple):
    """A tensor that was saved by hand for the step to come."""

    name: str
    saved: Saved
    mode: modes
    mode_step: int


class ModelHook:
    """What a hook does, in the plainest words: one process, one run.

    Args:
        run: the run it writes.
        schedule: the hook's own save schedule.
        reduced: the hook's own reductions.
        collections: the collections it has from the start.
        included: the names of those that are saved.
        save_all: everything is saved.
    """

    def __init__(
        self, run: ModelRun, schedule: Schedule, reduced: Reduced,
        collections: dict[str, ModelCollection], included: set[str], save_all: bool,
    ) -> None:  # fmt: skip
        self.run = run
        self.schedule, self.reduced = schedule, reduced
        self.collections, self.included, self.save_all = collections, included, save_all
        self.step, self.mode = -1, GLOBAL
        self.counts: dict[modes, int] = {}
        self.present: Present | None = None
        self._last: dict[modes, Stamp] = {}
        self.early: list[Early] = []
        # The counts of all modes after each step of this process.
        self.made: dict[int, dict[modes, int]] = {}
        # Collections that were configured differently since the step in progress began.
        self.reconfigured: set[str] = set()

    # -- steps

    def begin_step(self) -> None:
        """Begin the next step of the present mode."""
        self.step += 1
        self.counts[self.mode] = self.counts.get(self.mode, -1) + 1
        self.counts[GLOBAL] = self.step
        stamp = Stamp(self.step, self.mode, self.counts[self.mode])
        # In GLOBAL the last step is the last one of any mode.
        self._last[self.mode] = self._last[GLOBAL] = stamp
        self.made = {number: each for number, each in self.made.items() if number < self.step}
        self.made[self.step] = dict(self.counts)
        included = set(self.included) | (set(self.collections) if self.save_all else set())
        self.present = Present(stamp, copy.deepcopy(self.collections), included, {}, set())
        self.reconfigured = set()
        for each in self.early:
            self.run.put({stamp}, each.name, each.saved)
        self.early = []

    def go_to(self, number: int) -> dict[modes, int] | None:
        """Make a step the last one; return the counts of its modes if they are known exactly."""
        self.present = None
        self._last = {}
        self.run.rewound = True
        if number == -1:
            return {}
        return self.made.get(number)

    def go_on(self, number: int, counts: dict[modes, int]) -> None:
        """Continue after a step with the counts of the modes it had."""
        self.step = number
        self.counts = {mode: count for mode, count in counts.items() if count >= 0}

    # -- what is saved

    def observe(self, observed: list[Observed]) -> None:
        """Tensors of the step in progress were computed; without a step they belong to none."""
        present = self.present
        if present is None:
            return
        present.observed.update(observed)
        mode, mode_step = present.stamp.mode, present.stamp.mode_step
        groups: dict[Schedule, list[ModelCollection]] = {}
        for name in present.included:
            if name in TRAINING_ONLY and mode in (EVAL, PREDICT):
                continue
            collection = present.collections[name]
            groups.setdefault(self._schedule_of(collection, mode), []).append(collection)
        for schedule in groups:
            for name, array in observed:
                watched = any(re.search(regex, name) for regex in schedule.when_nan)
                if watched and not np.isfinite(array).all():
                    present.triggered.add(schedule)
        saving = [
            collection
            for schedule, group in groups.items()
            if schedule.is_due(mode_step) or schedule in present.triggered
            for collection in group
        ]
        # All of the step: what came before a NaN is saved as well.
        for name, array in present.observed.items():
            self._put({present.stamp}, name, array, [c for c in saving if c.matches(name)])

    def save_tensor(self, name: str, array: Array, collections: list[str]) -> None:
        """Save a tensor by hand: at the last step of the present mode, else at its next one."""
        stamp = self._last.get(self.mode)
        mode_step = self.counts.get(self.mode, -1) + 1 if stamp is None else stamp.mode_step
        chosen = [self.collections.setdefault(each, ModelCollection(each)) for each in collections]
        due = [
            c
            for c in chosen
            if self._schedule_of(c, self.mode_of(stamp)).is_due(mode_step)
            or self._is_triggered(c, stamp)
        ]
        if stamp is not None:
            self._put({stamp}, name, array, due)
        elif due:
            saved = saved_of(array, self._reduced_of(due))
            self.early.append(Early(name, saved, self.mode, mode_step))

    def save_scalar(self, name: str, value: float) -> None:
        """Save a number by hand, whatever the schedule."""
        saved = Saved(np.array([value]), {}, set())
        stamp = self._last.get(self.mode)
        if stamp is not None:
            self.run.put({stamp}, f"scalar/{name}", saved)
        else:
            mode_step = self.counts.get(self.mode, -1) + 1
            self.early.append(Early(f"scalar/{name}", saved, self.mode, mode_step))

    def _is_triggered(self, collection: ModelCollection, stamp: Stamp | None) -> bool:
        """Return whether a collection is saved at the step in progress because of a NaN."""
        present = self.present
        if present is None or present.stamp != stamp or collection.name not in present.included:
            return False
        if collection.name in TRAINING_ONLY and stamp.mode in (EVAL, PREDICT):
            return False
        return self._schedule_of(collection, stamp.mode) in present.triggered

    def mode_of(self, stamp: Stamp | None) -> modes:
        """Return the mode of the step that something saved by hand belongs to."""
        return self.mode if stamp is None else stamp.mode

    @property
    def saves_early(self) -> bool:
        """Whether a tensor saved by hand now belongs to a step that has not begun."""
        return self.mode not in self._last

    def publish(self) -> None:
        """Flush or close: what was saved for the step to come is in the run, with or without it."""
        number = self.step + 1
        present = Stamp(number, self.mode, self.counts.get(self.mode, -1) + 1)
        stamps = {Stamp(number, each.mode, each.mode_step) for each in self.early} | {present}
        for each in self.early:
            self.run.put(stamps, each.name, each.saved)
        self.early = []

    def _put(
        self, stamps: set[Stamp], name: str, array: Array, collections: list[ModelCollection]
    ) -> None:
        if collections:
            self.run.put(stamps, name, saved_of(array, self._reduced_of(collections)))

    def _schedule_of(self, collection: ModelCollection, mode: modes) -> Schedule:
        return collection.schedules.get(mode, self.schedule)

    def _reduced_of(self, collections: list[ModelCollection]) -> list[Reduced]:
        return [
            RAW if each.name in NUMBERS else self.reduced if each.reduced is None else each.reduced
            for each in collections
        ]


# ---- the machine

MODES = st.sampled_from([TRAIN, TRAIN, EVAL, EVAL, PREDICT, GLOBAL])
PERHAPS_MODE = st.sampled_from([None, None, None, TRAIN, EVAL, GLOBAL])
REDUCED = st.sampled_from(
    [
        RAW,
        Reduced(("min", "max")),
        Reduced(("min", "max")),
        Reduced(("min", "max", "nans", "infs")),
        Reduced(("mean", "abs_max", "l2")),
        Reduced(("median", "zeros", "std")),
        Reduced(("max",), raw=True),
    ]
)
PLAIN = st.builds(
    Schedule,
    interval=st.sampled_from([1, 1, 1, 2, 3]),
    start=st.sampled_from([0, 0, 0, 2]),
    end=st.sampled_from([None, None, 4]),
    steps=st.sampled_from([(), (), (1,)]),
    when_nan=st.just(()),
)
# Those saved to by hand. `fresh` does not exist until something is saved to it.
BY_HAND = [["mine"], ["mine"], ["fresh"], ["weights"], ["losses"], ["losses", "mine"]]


class HookMachine(RuleBasedStateMachine):
    """Calls the public API of a hook in any order; `driver` and `folder` come from a subclass."""

    driver: Driver
    folder: Path
    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        self.out_dir = str(self.folder / str(self.made))
        self.clock = 0
        self.modules = 1
        self.can_go_backward = False
        self.run = ModelRun()

    # -- the life of a hook

    @initialize(
        data=st.data(), format=st.sampled_from(["v1", "v2"]), schedule=PLAIN, reduced=REDUCED,
        save_all=st.sampled_from([False, False, True]),
    )  # fmt: skip
    def start(
        self, data: st.DataObject, format: str, schedule: Schedule, reduced: Reduced, save_all: bool
    ) -> None:
        self.make_hook(schedule, reduced, save_all, format=format)
        if data.draw(st.booleans(), label="when_nan"):
            watched = data.draw(st.sampled_from(self.driver.when_nan))
            rare = Schedule(interval=3, end=1, when_nan=(watched,))
            for name in ("weights", "losses", "gradients"):
                if data.draw(st.booleans(), label=name):
                    self.configure(name, dict.fromkeys(modes, rare), None)

    def make_hook(
        self, schedule: Schedule, reduced: Reduced, save_all: bool, **options: Any
    ) -> None:
        """Make a hook, and the model of it."""
        self.hook = self.driver.make_hook(
            self.out_dir,
            include_collections=["mine", "weights", "gradients"],
            save_config=schedule.config(),
            reduction_config=None if reduced == RAW else reduced.config(),
            save_all=save_all,
            # Published by `flush` and `close` only, unless a test requests it.
            flush_seconds=1000,
            on_error="raise",
            **options,
        )
        collections = {
            name: ModelCollection(name, list(each.include_regex))
            for name, each in self.hook.get_collections().items()
        }
        included = set(self.hook.include_collections)
        assert {"mine", "weights", "gradients", "losses"} <= included
        self.model = ModelHook(self.run, schedule, reduced, collections, included, save_all)
        # Kept by the user, who changes them whenever it suits.
        self.kept = {name: self.hook.get_collection(name) for name in ("mine", "weights")}
        self.include("mine", self.driver.regexes[0])
        self.can_go_backward = False
        self.modules = 1

    @precondition(lambda self: self.model.step >= 0)
    @rule(
        by_error=st.sampled_from([False, False, True]), used=st.booleans(),
        schedule=PLAIN, reduced=REDUCED, save_all=st.sampled_from([False, False, True]),
    )  # fmt: skip
    def restart(
        self, by_error: bool, used: bool, schedule: Schedule, reduced: Reduced, save_all: bool
    ) -> None:
        """Close the hook and continue the run with another one."""
        self.close(by_error)
        if used:
            self.use_closed_hook()
        if self.run.steps:
            with pytest.raises(SMDebugRuntimeError, match="finished run"):
                self.driver.make_hook(self.out_dir)
        self.make_hook(schedule, reduced, save_all, resume=True)
        last = max(self.run.steps, default=-1)
        counts = dict(self.hook.mode_steps)
        self.check_counts(last, counts)
        stamps = self.run.stamps.get(last, set())
        if len(stamps) == 1:
            (stamp,) = stamps
            assert counts[stamp.mode] == stamp.mode_step
        if self.run.is_gapless:
            expected = {each.mode: each.mode_step for each in self.run.in_order()}
            assert positive(counts) == positive({**expected, GLOBAL: last})
        self.model.go_on(last, counts)

    def close(self, by_error: bool) -> None:
        """Close the hook, at the end of a job or because of an exception."""
        if by_error:
            with pytest.raises(ZeroDivisionError), self.hook:
                raise ZeroDivisionError
        else:
            self.hook.close()
        self.model.publish()
        self.compare()

    def use_closed_hook(self) -> None:
        """Call what training calls after `close`: nothing is saved."""
        self.clock += 1
        self.hook.set_mode(TRAIN)
        self.hook.save_scalar("late", 1.0)
        self.hook.save_tensor("late", self.driver.tensor(np.ones(2)), "mine")
        self.driver.forward(self.hook, 0, self.clock, nan=False, fail=False)
        self.hook.flush()
        self.hook.close()

    def teardown(self) -> None:
        try:
            if hasattr(self, "hook"):
                self.close(by_error=False)
        finally:
            shutil.rmtree(self.out_dir, ignore_errors=True)

    # -- steps

    @rule(
        mode=PERHAPS_MODE, second=st.booleans(), backward=st.booleans(),
        nan=st.sampled_from([False, False, True]), fail=st.sampled_from([False] * 4 + [True]),
    )  # fmt: skip
    def forward(
        self, mode: modes | None, second: bool, backward: bool, nan: bool, fail: bool
    ) -> None:
        """Make a step, in the present mode or in another one."""
        if mode is not None:
            self.set_mode(mode)
        self.clock += 1
        module = int(second and self.modules == 2)
        observed = self.driver.forward(self.hook, module, self.clock, nan, fail)
        self.model.begin_step()
        self.model.observe(observed)
        self.can_go_backward = not fail
        if backward and not fail:
            self.backward()

    @rule(mode=MODES, count=st.integers(1, 3))
    def train(self, mode: modes, count: int) -> None:
        """Make a few ordinary steps."""
        for _ in range(count):
            self.forward(mode, second=False, backward=True, nan=False, fail=False)

    @precondition(lambda self: self.driver.separate_backward and self.can_go_backward)
    @rule()
    def backward_alone(self) -> None:
        """Run the backward pass later, or again."""
        self.backward()

    def backward(self) -> None:
        """Run the backward pass of the last forward pass."""
        self.model.observe(self.driver.backward(self.hook))

    @precondition(lambda self: self.modules == 1)
    @rule()
    def second_module(self) -> None:
        self.driver.add_module(self.hook)
        self.modules = 2

    @rule(mode=MODES)
    def set_mode(self, mode: modes) -> None:
        self.hook.set_mode(mode)
        self.model.mode = mode

    # Rarely: after it nothing belongs to an earlier step.
    @precondition(lambda self: self.model.step >= 2 or self.clock == 0)
    @rule(back=st.integers(-2, 4))
    def set_step(self, back: int) -> None:
        number = max(self.model.step - back, -1)
        self.hook.step = number
        known = self.model.go_to(number)
        counts = dict(self.hook.mode_steps)
        self.check_counts(number, counts)
        if known is not None:
            assert positive(counts) == positive(known)
        self.model.go_on(number, counts)

    # -- by hand

    @rule(mode=PERHAPS_MODE, saves=st.lists(st.sampled_from(BY_HAND), min_size=1, max_size=3))
    def save_tensors(self, mode: modes | None, saves: list[list[str]]) -> None:
        if mode is not None:
            self.set_mode(mode)
        for place, collections in enumerate(saves):
            if not self.model.saves_early and self.model.reconfigured & set(collections):
                # Whether the new configuration holds before the next step is not specified.
                continue
            array = self.values((3,))
            # Saved again in its step, a tensor is saved in the same way.
            name = "_".join(["hand", str(place), *collections])
            given = collections if len(collections) > 1 else collections[0]
            self.hook.save_tensor(name, self.driver.tensor(array), given)
            self.model.save_tensor(name, array, collections)

    @rule(mode=PERHAPS_MODE, name=st.sampled_from("xy"))
    def save_scalar(self, mode: modes | None, name: str) -> None:
        if mode is not None:
            self.set_mode(mode)
        self.clock += 1
        self.hook.save_scalar(name, float(self.clock))
        self.model.save_scalar(name, float(self.clock))

    @rule()
    def flush(self) -> None:
        self.hook.flush()
        self.model.publish()
        self.compare()

    # -- collections

    @rule(data=st.data(), how=st.sampled_from(["include", "replace", "new", "configure"]))
    def change_collections(self, data: st.DataObject, how: str) -> None:
        """Change what is saved while training runs; it holds from the next step on."""
        regex = data.draw(st.sampled_from(self.driver.regexes), label="regex")
        if how == "include":
            self.include(data.draw(st.sampled_from(sorted(self.kept)), label="name"), regex)
        elif how == "new":
            # Not among `include_collections`: nothing of it is saved, unless everything is.
            self.hook.get_collection("other").include(regex)
            other = self.model.collections.setdefault("other", ModelCollection("other"))
            other.include.append(regex)
        elif self.model.early:
            # Which configuration a tensor saved before its step has is not specified then.
            pass
        elif how == "replace":
            self.hook.add_collection(Collection("mine", include_regex=regex))
            # The object the user kept is no longer the hook's.
            self.kept["mine"] = self.hook.get_collection("mine")
            self.model.collections["mine"] = ModelCollection("mine", [regex])
            self.model.reconfigured.add("mine")
        else:
            name = data.draw(st.sampled_from(["mine", "weights", "gradients"]), label="name")
            chosen = data.draw(st.sampled_from([[], [TRAIN], list(modes)]), label="modes")
            schedule = data.draw(PLAIN, label="schedule")
            reduced = data.draw(st.none() | REDUCED, label="reductions")
            self.configure(name, dict.fromkeys(chosen, schedule), reduced)

    def configure(self, name: str, schedules: Schedules, reduced: Reduced | None) -> None:
        """Give a collection another schedule and other reductions."""
        collection = self.kept[name] if name in self.kept else self.hook.get_collection(name)
        collection.save_config = save_config(schedules) if schedules else None
        collection.reduction_config = None if reduced is None else reduced.config()
        before = self.model.collections[name]
        self.model.collections[name] = replace(before, schedules=schedules, reduced=reduced)
        self.model.reconfigured.add(name)

    def include(self, name: str, regex: str) -> None:
        """Add a regex to a collection that the user has kept."""
        self.kept[name].include(regex)
        self.model.collections[name].include.append(regex)

    # -- checks

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "hook"):
            return
        assert (self.hook.step, self.hook.mode) == (self.model.step, self.model.mode)
        assert positive(self.hook.mode_steps) == positive(self.model.counts)

    def check_counts(self, number: int, counts: dict[modes, int]) -> None:
        """Check what must hold of counts that are not known exactly."""
        assert self.hook.step == number == counts[GLOBAL]
        assert all(-1 <= count <= number for count in counts.values())

    def compare(self) -> None:
        """Read the run and compare all of it."""
        if not self.run.steps:
            return
        trial = create_trial(self.out_dir)
        note(f"{trial.tensor_names()} at {trial.steps()}")
        self.run.compare(trial)

    def values(self, shape: tuple[int, ...]) -> Array:
        """Return numbers that no other step has."""
        self.clock += 1
        count = int(np.prod(shape))
        return (self.clock * 8 + np.arange(count)).reshape(shape).astype(np.float32)


def positive(counts: dict[modes, int]) -> dict[modes, int]:
    """Return the counts of modes that have had a step."""
    return {mode: count for mode, count in counts.items() if count >= 0}
