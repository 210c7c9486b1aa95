"""Comparing two runs, against numpy in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import compute_reduction
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing import make_run
from smdebug.trials import selection
from smdebug.trials.compare.difference import compare_runs
from smdebug.trials.compare.tolerance import Tolerance
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from smdebug.reductions import Array

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
DTYPES = ["?", "i1", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ml_dtypes.bfloat16]


def trial_of(
    data: Callable[[str, int], list[Entry] | None],
    steps: Any = range(4),
    format: str = "v2",
    workers: tuple[str, ...] = ("worker_0",),
    modes: Mapping[int, tuple[ModeKeys, int]] | None = None,
) -> Trial:
    def batch(worker: str, step: int) -> StepBatch | None:
        entries = data(worker, step)
        mode, mode_step = (modes or {}).get(step, (TRAIN, step))
        return None if entries is None else StepBatch(step, mode, mode_step, entries)

    store = MemoryStore()
    make_run(store, steps, workers, format, data=batch)
    return Trial("run", store=store)


def one_tensor(value: Array, format: str = "v2") -> Trial:
    return trial_of(lambda worker, step: [Entry("x", value)], [0], format)


# ---- against numpy


@st.composite
def two_arrays(draw: st.DrawFn) -> tuple[Array, Array]:
    """Two arrays of one shape that differ in few places or many, in little or much."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=4))
    source = np.dtype("f4") if dtype == ml_dtypes.bfloat16 else dtype
    first = draw(hnp.arrays(source, shape))
    second = first.copy()
    for place in draw(st.lists(st.integers(0, first.size - 1), max_size=3)):
        second.reshape(-1)[place] = draw(hnp.from_dtype(source))
    with np.errstate(all="ignore"):
        return first.astype(dtype), second.astype(dtype)


@settings(max_examples=120, deadline=None)
@given(two_arrays(), st.sampled_from([0.0, 1e-5, 0.5]), st.sampled_from([0.0, 1e-8, 3.0]))
def test_values_are_compared_as_numpy_does(
    arrays: tuple[Array, Array], rtol: float, atol: float
) -> None:
    first, second = arrays
    wide = np.complex128 if first.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = first.astype(wide), second.astype(wide)
        close = np.isclose(a, b, rtol, atol, equal_nan=True)
        gaps = np.abs(a - b)
    if first.dtype.kind in "biu" and not rtol and not atol:
        close = first == second
    found = compare_runs(one_tensor(first), one_tensor(second), rtol=rtol, atol=atol).first
    if close.all():
        assert found is None
        return
    assert found is not None
    assert (found.step, found.tensor, found.what) == (0, "x", "value")
    by = found.mismatch
    assert (by.differing, by.elements) == (int((~close).sum()), first.size)
    assert not close[by.at]
    expected = gaps[~close]
    if np.isnan(expected).any() or np.isinf(expected).any():
        assert by.largest is not None
        assert not np.isfinite(by.largest)
    else:
        assert by.largest == expected.max() == gaps[by.at]


def test_infinities_and_not_a_number() -> None:
    inf, nan = np.inf, np.nan
    same = np.array([inf, -inf, nan, 1.0])
    assert compare_runs(one_tensor(same), one_tensor(same.copy())).first is None
    for other in ([-inf, -inf, nan, 1.0], [inf, -inf, 0.0, 1.0], [1e300, -inf, nan, 1.0]):
        found = compare_runs(one_tensor(same), one_tensor(np.array(other))).first
        assert found is not None
        assert found.mismatch.differing == 1


def test_large_tensors_are_compared_in_pieces() -> None:
    first = np.zeros((3, 1 << 20), np.float32)
    second = first.copy()
    second[0, 5], second[2, 7], second[1, 9] = 1.0, 3.0, 2.0
    what, by = Tolerance(1e-5, 1e-8).compare(first, second) or ("", None)
    assert (what, by and (by.at, by.largest, by.differing)) == ("value", ((2, 7), 3.0, 3))


@pytest.mark.parametrize("formats", [("v2", "v2"), ("v1", "v1"), ("v1", "v2")], ids="-".join)
def test_kinds(formats: tuple[str, str]) -> None:
    def found(first: Array, second: Array) -> Any:
        trials = (
            one_tensor(value, form) for value, form in zip((first, second), formats, strict=True)
        )
        each = compare_runs(*trials).first
        return each and (each.what, each.mismatch.first, each.mismatch.second, each.mismatch.at)

    ones = np.ones((2, 3), np.float32)
    assert found(ones, ones) is None
    assert found(ones, ones.astype("f8")) == ("dtype", "float32", "float64", ())
    assert found(ones, np.ones((3, 2), "f4")) == ("shape", [2, 3], [3, 2], ())
    assert found(ones[0, 0], np.float32(2)) == ("value", 1.0, 2.0, ())
    assert found(ones[:1, :1], ones[:1, :1] + 1) == ("value", 1.0, 2.0, (0, 0))
    assert found(ones[0, 0], ones[0, :1]) == ("shape", [], [1], ())
    texts = np.array(["a", "b"])
    assert found(texts, texts) is None
    assert found(texts, np.array(["a", "c"])) == ("value", "b", "c", (1,))
    assert found(np.zeros((0, 3)), np.zeros((0, 3))) is None
    assert found(np.zeros((0, 3)), np.zeros((0, 2))) == ("shape", [0, 3], [0, 2], ())


def test_bytes() -> None:
    first, second = np.array([b"a", b"\xff"]), np.array([b"a", b"\xfe"])
    found = compare_runs(one_tensor(first), one_tensor(second)).first
    assert found is not None
    assert (found.mismatch.first, found.mismatch.at) == ("\\xff", (1,))


# ---- which is the first


def test_the_first_is_the_first_computed() -> None:
    """Not the first by name: tensors of a step lie in the order of training."""

    def data(late: float) -> Callable[[str, int], list[Entry]]:
        def entries(worker: str, step: int) -> list[Entry]:
            moved = late if step >= 2 else 0.0
            names = ["z", "loss", "a", "m"]
            values = [np.full(4, 1.0 + (moved if name in "az" else 0)) for name in names]
            return [Entry(*pair) for pair in zip(names, values, strict=True)]

        return entries

    found = compare_runs(trial_of(data(0)), trial_of(data(0.5)))
    order = [(each.step, each.tensor, each.place, each.of) for each in found.differences]
    assert order == [(2, "z", 1, 4), (2, "a", 3, 4), (3, "z", 1, 4), (3, "a", 3, 4)]
    assert (found.compared, found.complete) == (16, True)
    chosen = compare_runs(trial_of(data(0)), trial_of(data(0.5)), tensor="^[a-m]$")
    # Its place is that among all tensors of the step.
    assert [(each.tensor, each.place, each.of) for each in chosen.differences] == [("a", 3, 4)] * 2


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_first_of_many(data: st.DataObject) -> None:
    steps, tensors, workers = 5, 4, ("a", "b")
    changed = data.draw(
        st.sets(
            st.tuples(
                st.sampled_from(workers), st.integers(0, steps - 1), st.integers(0, tensors - 1)
            )
        )
    )
    # Some are single numbers, some tensors, some only reductions.
    kinds = data.draw(st.lists(st.integers(0, 2), min_size=tensors, max_size=tensors))

    def entries(moved: bool) -> Callable[[str, int], list[Entry]]:
        def make(worker: str, step: int) -> list[Entry]:
            made = []
            for number, kind in enumerate(kinds):
                far = 1.0 if moved and (worker, step, number) in changed else 0.0
                value = np.arange(6.0) + far
                name = f"t{tensors - number}"
                made.append(
                    Entry(name, None, {"l2": 1 + far, "max": 2.0}, shape=(6,), dtype="float64")
                    if kind == 2
                    else Entry(name, value if kind else value[0])
                )
            return made

        return make

    trials = [trial_of(entries(moved), range(steps), workers=workers) for moved in (False, True)]
    found = compare_runs(*trials, everything=True)
    expected = sorted((step, number, worker) for worker, step, number in changed)
    got = [(each.step, each.place - 1, each.worker) for each in found.differences]
    assert got == expected
    assert found.compared == steps * tensors * len(workers)
    short = compare_runs(*trials)
    assert short.differences == found.differences[: len(short.differences)]
    assert bool(short.first) == bool(expected)


def test_it_ends_behind_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smdebug.trials.compare.alignment._MOST_ROWS", 2)
    first = trial_of(lambda worker, step: [Entry("x", np.arange(3.0))], range(20))
    second = trial_of(lambda worker, step: [Entry("x", np.arange(3.0) + (step > 4))], range(20))
    found = compare_runs(first, second)
    assert [each.step for each in found.differences] == [5]
    assert (found.compared, found.complete) == (6, False)
    told: list[tuple[int, int]] = []
    found = compare_runs(first, second, everything=True, tell=lambda *pair: told.append(pair))
    assert [each.step for each in found.differences] == list(range(5, 20))
    assert found.complete
    assert told[-1] == (20, 20)


def test_tensors_larger_than_the_memory_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_BYTES", 1)
    values = np.arange(12.0).reshape(3, 4)
    first = trial_of(lambda worker, step: [Entry("x", values), Entry("y", values)])
    second = trial_of(lambda worker, step: [Entry("x", values), Entry("y", values + (step == 3))])
    found = compare_runs(first, second)
    assert [(each.step, each.tensor) for each in found.differences] == [(3, "y")]


# ---- reductions


def test_one_reduction_saved_or_computed() -> None:
    values = np.random.default_rng(0).standard_normal(50)
    saved = {"l2": float(compute_reduction(values, "l2")), "mean": 7.0}

    def raw(worker: str, step: int) -> list[Entry]:
        return [Entry("x", values + 0.0 * step)]

    def reduced(worker: str, step: int) -> list[Entry]:
        return [Entry("x", None, saved, shape=(50,), dtype="float64")]

    assert compare_runs(trial_of(raw), trial_of(reduced), reduction="l2_norm").compared == 4
    assert compare_runs(trial_of(raw), trial_of(reduced), reduction="l2").first is None
    found = compare_runs(trial_of(raw), trial_of(reduced), reduction="mean").first
    assert found is not None
    assert (found.what, found.mismatch.first, found.mismatch.second) == (
        "mean", float(np.mean(values)), 7.0,
    )  # fmt: skip
    with pytest.raises(SMDebugValueError, match="nothing that was saved of them in both"):
        compare_runs(trial_of(raw), trial_of(reduced))
    with pytest.raises(SMDebugValueError, match="unknown reduction 'l3'"):
        compare_runs(trial_of(raw), trial_of(raw), reduction="l3")


def test_reductions_of_different_shapes() -> None:
    def of(shape: tuple[int, ...]) -> Trial:
        return trial_of(lambda w, s: [Entry("x", None, {"l2": 1.0}, shape=shape, dtype="float32")])

    found = compare_runs(of((2,)), of((3,))).first
    assert found is not None
    assert (found.what, found.mismatch.first, found.mismatch.second) == ("shape", [2], [3])


# ---- what only one has


def test_what_only_one_has() -> None:
    x = np.arange(3.0)
    first = trial_of(
        lambda worker, step: [Entry("x", x), Entry("y", x), Entry("only a", x)],
        range(5),
        workers=("w0", "w1"),
    )
    second = trial_of(
        lambda worker, step: [Entry("x", x), Entry("y", x)], range(2, 8), workers=("w0",)
    )
    third = trial_of(lambda worker, step: [Entry("x", x), Entry("y", x)], range(8))
    found = compare_runs(first, second)
    assert found.first is None
    assert {key: (each.count, each.some) for key, each in found.only_first.items()} == {
        "steps": (2, [0, 1]), "tensors": (1, ["only a"]), "workers": (1, ["w1"]), "rows": (0, []),
    }  # fmt: skip
    assert found.only_second["steps"].some == [5, 6, 7]
    with pytest.raises(SMDebugValueError, match="workers in common"):
        compare_runs(first, third)
    same = trial_of(lambda w, s: [Entry("x", x), *([Entry("y", x)] if s else [])], range(5))
    assert compare_runs(same, third).only_second["rows"].count == 1


def test_modes_are_paired_by_their_own_steps() -> None:
    def modes(evaluate: int) -> dict[int, tuple[ModeKeys, int]]:
        counts = {TRAIN: 0, EVAL: 0}
        plan = {}
        for step in range(12):
            mode = EVAL if step % evaluate == evaluate - 1 else TRAIN
            plan[step] = (mode, counts[mode])
            counts[mode] += 1
        return plan

    def data(plan: dict[int, tuple[ModeKeys, int]], moved: int) -> Trial:
        def entries(worker: str, step: int) -> list[Entry]:
            mode, number = plan[step]
            value = np.arange(3.0) + number + (number >= moved and mode is TRAIN)
            return [Entry("x", value if mode is TRAIN else -value)]

        return trial_of(entries, range(12), modes=plan)

    first, second = data(modes(3), 99), data(modes(4), 5)
    found = compare_runs(first, second, mode=TRAIN)
    assert found.first is not None
    assert found.first.step == 5
    assert compare_runs(first, second, mode=EVAL).first is None
    with pytest.raises(SMDebugValueError, match="steps of mode predict in common"):
        compare_runs(first, second, mode=ModeKeys.PREDICT)


def test_arguments_that_make_no_sense() -> None:
    trial = one_tensor(np.arange(3.0))
    for arguments, said in (
        ({"rtol": -1.0}, "rtol must be a number"),
        ({"atol": float("nan")}, "atol must be a number"),
        ({"tensor": "("}, "must be a regular expression"),
        ({"tensor": "^y"}, "tensors with '\\^y' in their names in common"),
    ):
        with pytest.raises(SMDebugValueError, match=said):
            compare_runs(trial, trial, **arguments)
