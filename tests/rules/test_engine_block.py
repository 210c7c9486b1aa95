"""What a frame of steps says, compared with what was written."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import DataCorrupted
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import COUNTS, REDUCTION_NAMES, compute_reduction, compute_reductions
from smdebug.rules.rule_frames import frame_of_steps
from smdebug.storage.batch import Block, BlockSchema, Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import default_collections, make_run
from smdebug.trials import Trial, create_trial
from smdebug.trials.frame import Column, Frame, RawValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from smdebug.reductions import Array

TRAIN, EVAL, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL
NAMES = ("loss", "fc.weight", "gradient/fc:0", "Ünï")
WORKERS = ("worker_0", "worker_1")
_NUMBERS = itertools.count()
# A number by step, tensor and worker.
Cells = dict[tuple[int, str, str], float]


def everything(name: str) -> bool:
    return True


def is_real(name: str) -> bool:
    """Whether a complex tensor has this reduction."""
    return name.startswith("abs_") or name in ("l1", "l2", *COUNTS)


# ---- random runs


def arrays() -> st.SearchStrategy[Any]:
    """Tensors of every kind that can be saved."""
    shapes = st.sampled_from([(), (1,), (1, 1), (3,), (2, 3), (0,), (0, 2), (40,)])
    odd = st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, 1.0, -2.5])

    @st.composite
    def one(draw: st.DrawFn) -> Any:
        kind = draw(
            st.sampled_from(
                ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool", "complex64",
                 "complex128", "text", "big"]
            )
        )  # fmt: skip
        shape = draw(shapes)
        size = int(np.prod(shape))
        random = np.random.default_rng(draw(st.integers(0, 1000)))
        numbers = random.standard_normal(size)
        for place in range(min(size, draw(st.integers(0, 3)))):
            numbers[place] = draw(odd)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind == "text":
                return np.array([f"ü{n}" for n in range(size)]).reshape(shape)
            if kind == "big":
                return np.full(shape, 2**53 + 1, np.int64)
            if kind == "bfloat16":
                return numbers.astype(ml_dtypes.bfloat16).reshape(shape)
            if kind.startswith("complex"):
                return (numbers + 2j).astype(kind).reshape(shape)
            if kind in ("int64", "uint8", "bool"):
                return random.integers(0, 3, size).astype(kind).reshape(shape)
            return numbers.astype(kind).reshape(shape)

    return one()


@st.composite
def entries(draw: st.DrawFn, name: str) -> Entry:
    array = draw(arrays())
    kept = draw(st.sets(st.sampled_from(REDUCTION_NAMES), max_size=4))
    kind = draw(st.sampled_from(["raw", "reductions", "both", "shape", "false"]))
    if array.dtype.kind == "c":
        kept = {each for each in kept if is_real(each)}
    numbers = {} if array.dtype.kind == "U" else compute_reductions(array, kept)
    reductions = {key: float(value) for key, value in numbers.items()}
    if kind == "raw":
        return Entry(name, array)
    if kind == "both":
        return Entry(name, array, reductions)
    if kind == "false":
        # What was saved holds, whatever the value says.
        return Entry(name, array, {key: value + 1 for key, value in reductions.items()})
    dtype = "str" if array.dtype.kind == "U" else array.dtype.name
    return Entry(name, None, reductions if kind == "reductions" else {}, array.shape, dtype)


@dataclass
class Run:
    """What was written, by worker and step."""

    batches: dict[tuple[str, int], StepBatch]
    steps: list[int]
    workers: tuple[str, ...]

    def newest(self) -> dict[tuple[int, str, str], Entry]:
        """The entries as a reader must see them."""
        return {
            (step, entry.name, worker): entry
            for (worker, step), batch in self.batches.items()
            for entry in batch.entries
        }

    def mode(self, step: int) -> tuple[ModeKeys, int]:
        batch = next(each for (_, known), each in self.batches.items() if known == step)
        return batch.mode, batch.mode_step


@st.composite
def runs(draw: st.DrawFn) -> Run:
    workers = WORKERS[: draw(st.integers(1, 2))]
    steps = sorted(draw(st.sets(st.sampled_from([0, 1, 2, 3, 7, 50, 10**9]), min_size=1)))
    counts = dict.fromkeys(ModeKeys, 0)
    batches = {}
    for step in steps:
        mode = draw(st.sampled_from([TRAIN, EVAL]))
        writers = draw(st.sets(st.sampled_from(workers), min_size=1))
        for worker in sorted(writers):
            names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
            saved = [draw(entries(name)) for name in names]
            when = 1000.0 + step + draw(st.integers(0, 9)) / 10
            batches[worker, step] = StepBatch(step, mode, counts[mode], saved, time=when)
        counts[mode] += 1
    return Run(batches, steps, workers)


def written(run: Run, format: str = "v2", flush_every: int | None = None) -> Trial:
    url = f"memory://test_engine_block/{next(_NUMBERS)}"
    make_run(open_store(url), run.steps, run.workers, format, run.batches, flush_every=flush_every)
    return create_trial(url)


def block_of(trial: Trial, reads: Iterable[str] = REDUCTION_NAMES) -> Frame:
    return frame_of_steps(trial, 0, 2 * 10**9, reads)


def table_of(
    frame: Frame, reduction: str, choose: Callable[[str], bool], mode: ModeKeys = GLOBAL
) -> Frame:
    return frame.select(choose, mode)[reduction].known()


def raw_of(
    frame: Frame, choose: Callable[[str], bool], mode: ModeKeys = GLOBAL
) -> Iterator[RawValue]:
    return frame.select(choose, mode).raw_values()


# ---- the truth


def truth(run: Run, reduction: str) -> Cells:
    """The saved reduction, or what numpy makes of the saved value."""
    found: Cells = {}
    for key, entry in run.newest().items():
        if reduction in entry.reductions:
            found[key] = entry.reductions[reduction]
            continue
        value = entry.value
        if value is None and entry.shape is not None and 0 in entry.shape:
            value = empty_of(entry)
        if value is None or value.dtype.kind in "US":
            continue
        if value.dtype.kind == "c" and not is_real(reduction):
            continue
        found[key] = float(compute_reduction(value, reduction))
    return found


def empty_of(entry: Entry) -> Any:
    """A shape without elements says everything about a tensor."""
    assert entry.dtype is not None
    assert entry.shape is not None
    kind = {"str": "U1", "bfloat16": ml_dtypes.bfloat16}.get(entry.dtype, entry.dtype)
    return np.zeros(entry.shape, kind)


def cells(table: Frame) -> Cells:
    return {
        (int(step), column.tensor, column.worker): float(table.values[row, place])
        for row, step in enumerate(table.steps)
        for place, column in enumerate(table.columns)
        if table.present[row, place]
    }


def same(found: Cells, expected: Cells) -> None:
    assert set(found) == set(expected)
    for key, number in expected.items():
        # A saved number to the bit; numpy may add up in another order.
        np.testing.assert_allclose(found[key], number, rtol=1e-6, atol=0, err_msg=str(key))


def check_shape(table: Frame) -> None:
    """A table has no step and no column without a number, and says the same in all its parts."""
    shape = (len(table.steps), len(table.columns))
    assert table.values.shape == table.present.shape == table.cells.shape == shape
    assert list(table.steps) == sorted(set(table.steps.tolist()))
    assert len(set(table.columns)) == len(table.columns)
    assert table.present.any(axis=0).all()
    assert table.present.any(axis=1).all()
    assert not (table.present & (table.cells < 0)).any()
    assert np.isnan(table.values[~table.present]).all()


SETTINGS = settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@given(runs())
@SETTINGS
def test_every_reduction_is_the_saved_one_or_that_of_the_value(run: Run) -> None:
    frame = block_of(written(run))
    assert frame.steps.tolist() == run.steps
    assert len(frame) == len(run.steps)
    for reduction in REDUCTION_NAMES:
        table = table_of(frame, reduction, everything)
        check_shape(table)
        same(cells(table), truth(run, reduction))


@given(runs(), st.permutations(REDUCTION_NAMES), st.sampled_from(NAMES))
@SETTINGS
def test_the_order_of_questions_does_not_matter(run: Run, order: list[str], name: str) -> None:
    frame = block_of(written(run), order[:4])
    for reduction in order[:4]:
        chosen = cells(table_of(frame, reduction, lambda tensor: tensor == name))
        expected = truth(run, reduction)
        same(chosen, {key: number for key, number in expected.items() if key[1] == name})
        same(cells(table_of(frame, reduction, everything)), expected)
        same(cells(table_of(frame, reduction, lambda tensor: False)), {})


@given(runs())
@SETTINGS
def test_modes_times_sizes_and_positions(run: Run) -> None:
    frame = block_of(written(run))
    for place, step in enumerate(run.steps):
        batches = [batch for (_, known), batch in run.batches.items() if known == step]
        assert frame.mode_at(step) == run.mode(step)
        assert frame.times[place] == min(batch.time for batch in batches)
    assert frame.mode_steps.tolist() == [run.mode(step)[1] for step in run.steps]
    for mode in (TRAIN, EVAL):
        expected = {k: v for k, v in truth(run, "l2").items() if run.mode(k[0])[0] is mode}
        same(cells(table_of(frame, "l2", everything, mode)), expected)
    same(cells(table_of(frame, "l2", everything, GLOBAL)), truth(run, "l2"))
    table = frame.where_saved(everything)
    check_shape(table)
    sizes, positions, raw = table.sizes(-7), table.positions, table.has_value
    seen = set()
    for (row, place), there in np.ndenumerate(table.present):
        column, step = table.columns[place], int(table.steps[row])
        if not there:
            assert (sizes[row, place], raw[row, place]) == (-7, False)
            assert positions[row, place] == np.iinfo(np.int64).max
            continue
        seen.add((step, *column))
        entry = run.newest()[step, column.tensor, column.worker]
        shape = entry.shape if entry.value is None else entry.value.shape
        assert sizes[row, place] == (-7 if shape is None else np.prod(shape, dtype=int))
        order = [each.name for each in run.batches[column.worker, step].entries]
        assert positions[row, place] == order.index(entry.name)
        if shape is not None and 0 not in shape:
            assert raw[row, place] == (entry.value is not None)
    assert seen == set(run.newest())


@given(runs())
@SETTINGS
def test_numbers_laid_over_cells(run: Run) -> None:
    frame = block_of(written(run), ["mean", "zeros"])
    table = frame.where_saved(everything)
    for reduction in ("mean", "zeros"):
        values, known = table.read(reduction)
        expected = truth(run, reduction)
        found = {
            (int(table.steps[row]), *table.columns[place]): float(values[row, place])
            for row, place in zip(*np.nonzero(known), strict=True)
        }
        same(found, expected)
        assert np.isnan(values[~known]).all()
    where = np.arange(table.present.size).reshape(table.present.shape) % 2 == 0
    values, known = table.read("mean", where)
    whole, all_known = table.read("mean")
    np.testing.assert_array_equal(known, all_known & where)
    np.testing.assert_array_equal(values[known], whole[known])


@given(runs())
@SETTINGS
def test_raw_values_come_by_step_in_the_order_of_saving(run: Run) -> None:
    frame = block_of(written(run))
    found = list(raw_of(frame, everything))
    expected: dict[tuple[int, str], list[tuple[str, Any]]] = {}
    for (worker, step), batch in run.batches.items():
        for entry in batch.entries:
            value = entry.value
            if value is None and entry.shape is not None and 0 in entry.shape:
                value = empty_of(entry)
            if value is not None:
                expected.setdefault((step, worker), []).append((entry.name, value))
    assert [each.step for each in found] == sorted(each.step for each in found)
    by_writer: dict[tuple[int, str], list[tuple[str, Any]]] = {}
    for each in found:
        key = (each.step, each.column.worker)
        by_writer.setdefault(key, []).append((each.column.tensor, each.array))
    assert set(by_writer) == set(expected)
    for key, values in expected.items():
        assert [name for name, _ in by_writer[key]] == [name for name, _ in values]
        for (_, value), (_, truly) in zip(by_writer[key], values, strict=True):
            assert value.shape == truly.shape
            if truly.size:
                assert value.dtype == truly.dtype
            # By their bytes: NaN of bfloat16 is unknown to numpy's comparison.
            assert value.tobytes() == truly.astype(value.dtype).tobytes()
    for mode in (TRAIN, EVAL):
        chosen = [each.step for each in raw_of(frame, everything, mode)]
        assert chosen == [each.step for each in found if run.mode(each.step)[0] is mode]


def all_cells(frame: Frame) -> dict[str, Cells]:
    return {name: cells(table_of(frame, name, everything)) for name in ("l2", "abs_mean", "nans")}


@given(runs(), st.sets(st.sampled_from([1, 2, 3, 5, 40, 10**6, 10**9]), max_size=4))
@SETTINGS
def test_cut_into_blocks_it_says_the_same(run: Run, cuts: set[int]) -> None:
    trial = written(run)
    whole = all_cells(block_of(trial))
    edges = [0, *sorted(cuts), 2 * 10**9]
    pieces = [
        frame_of_steps(trial, begin, end, REDUCTION_NAMES)
        for begin, end in itertools.pairwise(edges)
    ]
    assert [step for piece in pieces for step in piece.steps.tolist()] == run.steps
    for name, expected in whole.items():
        found = [cells(table_of(piece, name, everything)) for piece in pieces]
        assert sum(len(each) for each in found) == len(expected)
        same({key: each for piece in found for key, each in piece.items()}, expected)


@given(runs(), st.integers(1, 3))
@SETTINGS
def test_formats_and_compaction_make_no_difference(run: Run, flush_every: int) -> None:
    expected = {name: truth(run, name) for name in ("l2", "abs_mean", "nans")}
    for format in ("v1", "v2"):
        found = all_cells(block_of(written(run, format, flush_every)))
        for name in expected:
            same(found[name], expected[name])


@given(runs(), st.data())
@SETTINGS
def test_of_a_step_that_was_saved_again_the_newest_counts(run: Run, data: st.DataObject) -> None:
    again = data.draw(runs())
    url = f"memory://test_engine_block/{next(_NUMBERS)}"
    first = {step: run.mode(step) for step in run.steps}
    for (_, step), batch in again.batches.items():
        # The step is the same one: its mode and place are too.
        batch.mode, batch.mode_step = first.get(step, (batch.mode, batch.mode_step))
    workers = WORKERS if len(again.workers) > len(run.workers) else run.workers
    make_run(open_store(url), run.steps, workers, "v2", run.batches, end=False)
    make_run(open_store(url), again.steps, workers, "v2", again.batches)
    frame = block_of(create_trial(url))
    for name in ("l2", "nans"):
        # Of what was saved anew nothing may come from before.
        earlier = {k: v for k, v in truth(run, name).items() if k not in again.newest()}
        same(cells(table_of(frame, name, everything)), {**earlier, **truth(again, name)})


# ---- single cases


def simple(path: Any, data: dict[int, list[Entry]], **options: Any) -> Trial:
    batches = {
        ("worker_0", step): StepBatch(step, TRAIN, step, each) for step, each in data.items()
    }
    make_run(path, data, data=batches, **options)
    return create_trial(str(path))


def test_a_number_that_was_saved_again_without_a_value_is_gone(tmp_path: Path) -> None:
    simple(tmp_path, {0: [Entry("t", np.ones(3, np.float32), {"l2": 7.0})]}, end=False)
    trial = simple(tmp_path, {0: [Entry("t", shape=(3,), dtype="float32")]})
    frame = block_of(trial)
    assert cells(table_of(frame, "l2", everything)) == {}
    assert frame.where_saved(everything).has_value.tolist() == [[False]]


def test_an_empty_block_says_nothing(tmp_path: Path) -> None:
    trial = simple(tmp_path, {5: [Entry("t", np.ones(3))]})
    for begin, end in ((0, 5), (6, 100), (5, 5), (7, 2)):
        frame = frame_of_steps(trial, begin, end, ["l2"])
        assert len(frame) == 0
        assert frame.columns == []
        table = table_of(frame, "l2", everything)
        assert table.values.shape == (0, 0)
        assert table.sizes().shape == table.positions.shape == (0, 0)
        assert frame.where_saved(everything).has_value.shape == (0, 0)
        assert list(raw_of(frame, everything)) == []
        values, known = table.read("l2")
        assert values.shape == known.shape == (0, 0)


def test_the_range_of_a_trial_bounds_its_blocks(tmp_path: Path) -> None:
    simple(tmp_path, {step: [Entry("t", np.full(2, step))] for step in range(10)})
    for bounds, expected in (((3, 6), [3, 4, 5]), ((None, 2), [0, 1]), ((8, None), [8, 9])):
        trial = create_trial(tmp_path, range_steps=bounds)
        assert block_of(trial).steps.tolist() == expected
        assert trial.rows_between(0, 100, ["step"])["step"].to_pylist() == expected
        assert trial.rows_between(4, 5, ["step"])["step"].to_pylist() == [4] * (4 in expected)


def test_rule_frames_the_writer_are_tensors_as_others(tmp_path: Path) -> None:
    layout = BlockSchema(("a", "b"), ("float32", "float32"), ((2,), (3, 2)))
    random = np.random.default_rng(1)
    values = {
        step: [random.random(shape, np.float32) for shape in layout.shapes] for step in range(3)
    }

    def data(worker: str, step: int) -> StepBatch:
        arrays: list[Array] = values[step]
        saved = Block(layout, arrays, {"mean": np.array([1.5, step])}, np.array([4, 2]))
        return StepBatch(step, TRAIN, step, [Entry("c", np.float64(3))], blocks=[saved])

    make_run(tmp_path, data=data)
    frame = block_of(create_trial(tmp_path))
    assert cells(table_of(frame, "mean", lambda name: name in "ab")) == {
        (step, name, "worker_0"): 1.5 if name == "a" else step for step in range(3) for name in "ab"
    }
    found = cells(table_of(frame, "abs_max", everything))
    assert found[1, "a", "worker_0"] == float(values[1][0].max())
    assert found[2, "b", "worker_0"] == float(values[2][1].max())
    assert found[0, "c", "worker_0"] == 3.0
    assert [each.column.tensor for each in raw_of(frame, lambda name: name in "ab")] == [
        "b",
        "a",
    ] * 3


def test_values_larger_than_a_chunk_are_read_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smdebug.trials.index_rows.CHUNK_BYTES", 5000)
    random = np.random.default_rng(0)
    values = [random.random((step * 300 + 2,)) for step in range(8)]
    trial = simple(tmp_path, {step: [Entry("t", each)] for step, each in enumerate(values)})
    frame = block_of(trial)
    for found, truly in zip(raw_of(frame, everything), values, strict=True):
        np.testing.assert_array_equal(found.array, truly)
    expected = {(step, "t", "worker_0"): float(each.mean()) for step, each in enumerate(values)}
    same(cells(table_of(frame, "mean", everything)), expected)


def test_a_damaged_value_is_an_error_for_whoever_asks_first_and_for_whoever_asks_next(
    tmp_path: Path,
) -> None:
    trial = simple(tmp_path, {0: [Entry("t", np.arange(100.0))], 1: [Entry("t", np.ones(100))]})
    (file,) = (tmp_path / "events").rglob("*.tfevents")
    content = bytearray(file.read_bytes())
    content[len(content) // 4] ^= 255
    file.write_bytes(bytes(content))
    frame = block_of(trial)
    for _ in range(3):
        with pytest.raises(DataCorrupted):
            table_of(frame, "mean", everything)
    with pytest.raises(DataCorrupted):
        frame.where_saved(everything).read("l2")


def test_a_step_saved_again_in_another_mode_is_of_the_newer_one(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for mode, names in ((TRAIN, ["a", "b"]), (EVAL, ["b"])):
        writer = RunWriter(store)
        writer.write_collections(default_collections().to_json())
        writer.submit(StepBatch(5, mode, 3, [Entry(name, np.ones(2)) for name in names]))
        writer.close()
    trial = create_trial(tmp_path)
    frame = block_of(trial)
    assert frame.mode_at(5) == trial.mode_modestep(5) == (EVAL, 3)


def test_many_workers_and_many_segments(tmp_path: Path) -> None:
    workers = [f"worker_{number}" for number in range(12)]

    def data(worker: str, step: int) -> StepBatch:
        number = int(worker.rpartition("_")[2])
        value = np.full(2, 100 * step + number, np.float64)
        return StepBatch(step, TRAIN, step, [Entry(f"t{number % 5}", value)])

    make_run(tmp_path, range(7), workers, data=data, flush_every=1, end=False)
    frame = block_of(create_trial(tmp_path))
    assert set(frame.columns) == {
        Column(f"t{number % 5}", worker) for number, worker in enumerate(workers)
    }
    expected = {
        (step, f"t{number % 5}", worker): 100.0 * step + number
        for step in range(7)
        for number, worker in enumerate(workers)
    }
    same(cells(table_of(frame, "max", everything)), expected)


def test_a_run_without_a_single_step() -> None:
    store = MemoryStore.named("memory://test_engine_block/none")
    writer = RunWriter(store)
    writer.write_collections(CollectionManager().to_json())
    writer.close()
    frame = block_of(create_trial("memory://test_engine_block/none"))
    assert (len(frame), frame.columns) == (0, [])
