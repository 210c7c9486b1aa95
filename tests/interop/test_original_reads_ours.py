"""Runs written here in format v1 are read by smdebug 1.0.34."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import ml_dtypes
import numpy as np
import pytest

from smdebug import Collection, ReductionConfig, SaveConfig, SaveConfigMode, modes
from smdebug.config.collection_manager import CollectionManager
from smdebug.reductions import REDUCTION_NAMES, Array, compute_reductions
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.format.keys import END_KEY
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.writer import RunWriter
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from smdebug.mode_keys import ModeKeys

Ask = Callable[[Path], dict[str, Any]]

READABLE = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool", "complex128")
# The original has no entry for these and raises KeyError.
UNREADABLE = ("int16", "uint16", "uint32", "uint64", "complex64")
WORKERS = ("worker_0", "worker_1")
STEPS = {0: (modes.TRAIN, 0), 1: (modes.TRAIN, 1), 2: (modes.EVAL, 0), 1000: (modes.TRAIN, 2)}


def write(
    run: Path,
    batches: Iterable[StepBatch],
    worker: str = "worker_0",
    manager: CollectionManager | None = None,
    end: bool = True,
    format: str = "v1",
    interrupted: bool = False,
) -> None:
    writer = RunWriter(LocalStore(str(run)), worker, format=format)
    writer.write_collections((manager or CollectionManager()).to_json())
    for batch in batches:
        writer.submit(batch)
    writer.close(end, interrupted)


def batch(step: int, *entries: Entry, mode: ModeKeys = modes.TRAIN) -> StepBatch:
    return StepBatch(step, mode, step, list(entries))


def values_of(seen: dict[str, Any], tensor: str) -> dict[tuple[int, str], Any]:
    rows = [row for row in seen["rows"] if row["tensor"] == tensor]
    return {(row["step"], row["worker"]): row["value"] for row in rows}


def assert_same_bits(theirs: Array, ours: Array) -> None:
    assert theirs.dtype == ours.dtype
    assert theirs.shape == ours.shape
    assert theirs.tobytes() == ours.tobytes()


# ---- one run with everything in it


def collections() -> CollectionManager:
    manager = CollectionManager(
        [
            Collection(
                "weights",
                include_regex=["^dtype/", "^reduced"],
                exclude_regex="bool$",
                reduction_config=ReductionConfig(
                    ["min", "median", "nans"], ["median", "max"], ["l1"], ["l2"], save_shape=True
                ),
                save_config=SaveConfig(save_interval=3, when_nan=["loss"]),
            ),
            Collection(
                "listed",
                tensor_names=["scalar", "strings", "never saved"],
                save_config={modes.TRAIN: SaveConfigMode(1, 2, 30, [5, 7]), modes.EVAL: None},
                save_histogram=False,
            ),
            Collection("counts", "^not", reduction_config=ReductionConfig(["zeros", "infs"])),
            Collection("empty"),
        ]
    )
    manager.set_num_workers(len(WORKERS))
    return manager


def entries(step: int, worker: str) -> list[Entry]:
    random = np.random.default_rng([step, WORKERS.index(worker)])
    small = random.integers(0, 2, (2, 3))
    wide = random.normal(size=(4, 3, 2)).astype(np.float32)
    holes = np.array([np.nan, np.inf, -np.inf, -0.0, random.normal()], np.float32)
    deep = random.normal(size=(3, 5))
    return [
        *(Entry(f"dtype/{name}", small.astype(name)) for name in READABLE),
        *(Entry(f"unreadable/{name}", small.astype(name)) for name in UNREADABLE),
        Entry("widened/bfloat16", wide.astype(ml_dtypes.bfloat16)),
        Entry("widened/float8", wide.astype(ml_dtypes.float8_e4m3fn)),
        Entry("dtype/int8", random.integers(-100, 100, (2, 3)).astype(np.int8)),
        Entry("dtype/big_endian", wide.astype(">f8")),
        Entry("dtype/transposed", wide.T),
        Entry("not_finite", holes, compute_reductions(holes, REDUCTION_NAMES)),
        Entry("scalar", np.asarray(random.normal(), np.float32)),
        Entry("one", np.array([random.normal()])),
        Entry("strings", np.array(["gain", "größe", "", f"{step}:0"])),
        Entry("empty", np.zeros((0, 3), np.float32)),
        Entry("empty_reduced", np.zeros((2, 0)), {"sum": 0.0, "abs_l2": 0.0}),
        Entry("reduced/raw", deep, compute_reductions(deep, REDUCTION_NAMES)),
        Entry(
            "reduced/only:0",
            reductions=compute_reductions(wide, REDUCTION_NAMES),
            shape=wide.shape,
            dtype="float32",
        ),
        Entry("shape_only", shape=(7, 0, 2), dtype="float32"),
    ]


def readable(array: Array) -> Array:
    """A value as the original can have it: little-endian, contiguous, no short floats."""
    if array.dtype.kind == "V" or array.dtype.name in ("bfloat16", "float8_e4m3fn"):
        array = array.astype(np.float32)
    return np.array(array, array.dtype.newbyteorder("<"), order="C")


@dataclass
class Run:
    seen: dict[str, Any]
    truth: dict[tuple[str, int, str], Entry]

    def rows(self, regex: str = "") -> list[tuple[dict[str, Any], Entry]]:
        found = [
            (row, self.truth[row["tensor"], row["step"], row["worker"]])
            for row in self.seen["rows"]
            if re.search(regex, row["tensor"])
        ]
        assert found
        return found


@pytest.fixture(scope="module")
def run(ask_original: Ask, tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("everything") / "run"
    truth = {}
    for worker in WORKERS:
        batches = [
            StepBatch(step, mode, mode_step, entries(step, worker))
            for step, (mode, mode_step) in STEPS.items()
        ]
        truth.update({(e.name, b.step, worker): e for b in batches for e in b.entries})
        write(path, batches, worker, collections(), end=worker == WORKERS[-1])
    return Run(ask_original(path), truth)


def test_workers(run: Run) -> None:
    assert run.seen["workers"] == list(WORKERS)
    assert run.seen["num_workers"] == len(WORKERS)


def test_steps_and_modes(run: Run) -> None:
    assert run.seen["modes"] == ["EVAL", "TRAIN"]
    assert run.seen["steps"] == {
        "GLOBAL": [0, 1, 2, 1000],
        "TRAIN": [0, 1, 2],
        "EVAL": [0],
        "PREDICT": [],
    }
    expected = [[step, mode.name, mode_step] for step, (mode, mode_step) in STEPS.items()]
    assert run.seen["mode_of_step"] == expected


def test_every_tensor_is_there(run: Run) -> None:
    assert run.seen["tensor_names"] == sorted({tensor for tensor, _, _ in run.truth})
    rows = {(row["tensor"], row["step"], row["worker"]) for row in run.seen["rows"]}
    assert rows == set(run.truth)


@pytest.mark.parametrize(
    "tensor",
    [
        *(f"^dtype/{name}$" for name in (*READABLE, "big_endian", "transposed")),
        "^widened/",
        "^not_finite$",
        "^scalar$",
        "^one$",
        "^strings$",
        "^reduced/raw$",
    ],
)
def test_values(run: Run, tensor: str) -> None:
    for row, entry in run.rows(tensor):
        assert entry.value is not None
        assert_same_bits(row["value"], readable(entry.value))
        assert tuple(row["shape"]) == entry.value.shape


def test_int8_keeps_its_bytes(run: Run) -> None:
    # The original takes int8 for uint8.
    for row, entry in run.rows("^dtype/int8$"):
        assert entry.value is not None
        assert row["value"].dtype == np.uint8
        assert row["value"].tobytes() == entry.value.tobytes()


def test_unreadable_dtypes_are_all_that_cannot_be_read(run: Run) -> None:
    unknown = {row["tensor"] for row, _ in run.rows() if error_of(row["value"]) == "KeyError"}
    assert unknown == {f"unreadable/{name}" for name in UNREADABLE}


def test_tensors_saved_without_a_value(run: Run) -> None:
    without = {
        row["tensor"]
        for row, _ in run.rows()
        if error_of(row["value"]) == "TensorUnavailableForStep"
    }
    assert without == {"empty", "empty_reduced", "reduced/only:0", "shape_only"}


def test_shapes_saved_without_a_value(run: Run) -> None:
    for row, entry in run.rows("^empty|^reduced/only|^shape_only"):
        shape = entry.shape if entry.value is None else entry.value.shape
        assert tuple(row["shape"]) == shape


def test_reductions(run: Run) -> None:
    for row, entry in run.rows():
        saved = row["saved_reductions"]
        assert saved.keys() == set(entry.reductions)
        for name, value in entry.reductions.items():
            np.testing.assert_equal(float(saved[name]), float(value))


def test_reductions_asked_for_by_name(run: Run) -> None:
    for row, entry in run.rows("^reduced/"):
        assert row["reductions"].keys() < entry.reductions.keys()
        for name, answer in row["reductions"].items():
            np.testing.assert_equal(float(answer), float(entry.reductions[name]))


def test_collections(run: Run) -> None:
    ours = {name: each.to_json_dict() for name, each in collections().collections.items()}
    assert "exclude_regex" in ours["weights"]
    assert "more_reductions" in ours["weights"]["reduction_config"]
    assert "when_nan" in ours["weights"]["save_config"]["TRAIN"]
    assert run.seen["collections"] == {name: known_keys(each) for name, each in ours.items()}
    reductions = run.seen["collections"]["weights"]["reduction_config"]["reductions"]
    assert reductions == "min,l1_norm,abs_max,abs_l2_norm"


def test_tensors_of_collections(run: Run) -> None:
    names = run.seen["tensor_names_of_collection"]
    # The original knows no exclude_regex.
    assert names["weights"] == [
        name for name in run.seen["tensor_names"] if re.search("^dtype/|^reduced", name)
    ]
    assert names["listed"] == ["scalar", "strings"]
    assert names["counts"] == ["not_finite"]
    assert names["empty"] == []


def error_of(answer: Any) -> str | None:
    return answer.get("error") if isinstance(answer, dict) else None


def known_keys(item: Any) -> Any:
    """Leaves out the keys that the original passes over."""
    if not isinstance(item, dict):
        return item
    extra = ("exclude_regex", "when_nan", "more_reductions")
    return {key: known_keys(value) for key, value in item.items() if key not in extra}


# ---- runs that were interrupted or resumed


# They name the folders, too: the original takes two underscores in one for a device.
@pytest.mark.parametrize("mark", [None, b"", b"interrupted"], ids=["none", "whole", "interrupted"])
def test_the_mark_of_the_end(ask_original: Ask, tmp_path: Path, mark: bytes | None) -> None:
    run, value = tmp_path / "run", np.arange(3.0)
    write(run, [batch(0, Entry("x", value))], end=mark is not None, interrupted=bool(mark))
    found = (run / END_KEY).read_bytes() if (run / END_KEY).exists() else None
    assert found == mark

    seen = ask_original(run)

    assert seen["steps"]["GLOBAL"] == [0]
    assert_same_bits(values_of(seen, "x")[0, "worker_0"], value)
    # It waits for no more of a job that somebody has stopped.
    assert seen["loaded_all_steps"] == (mark is not None)


def test_step_saved_twice(ask_original: Ask, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first, second = np.arange(3.0), np.arange(4.0) + 10
    entry = Entry("x", first, {"max": 2.0})
    write(run, [batch(0, entry), batch(1, entry), batch(2, entry)], end=False)
    write(run, [batch(2, Entry("x", second, {"max": 13.0})), batch(3, entry)], end=False)

    seen = ask_original(run)

    assert seen["steps"]["GLOBAL"] == [0, 1, 2, 3]
    values = values_of(seen, "x")
    for step, value in enumerate((first, first, second, first)):
        assert_same_bits(values[step, "worker_0"], value)
    saved = [float(row["saved_reductions"]["max"]) for row in seen["rows"]]
    assert saved == [2.0, 2.0, 13.0, 2.0]


def test_run_begun_by_the_original(
    run_peer: Callable[..., None], ask_original: Ask, tmp_path: Path
) -> None:
    run, truth_file = tmp_path / "run", tmp_path / "truth.npz"
    run_peer("write_with_file_writer.py", run, truth_file)
    again, later = np.full((2, 3), 7.0), np.arange(5)
    write(run, [batch(3, Entry("large", again)), batch(2000, Entry("large", later))], end=False)
    # Format v2 in the same place: unknown to the original, and no hindrance.
    write(run, [batch(3000, Entry("large", later))], format="v2", end=False)

    seen = ask_original(run)
    trial = create_trial(run)

    assert seen["steps"]["GLOBAL"] == [0, 3, 1500, 2000]
    assert trial.steps() == [0, 3, 1500, 2000, 3000]
    with np.load(truth_file) as truth:
        expected = {0: truth["0|large"], 3: again, 1500: truth["1500|large"], 2000: later}
    theirs, ours = values_of(seen, "large"), trial.tensor("large").values()
    for step, value in expected.items():
        assert_same_bits(theirs[step, "worker_0"], value)
        assert_same_bits(ours[step], value)
    assert_same_bits(ours[3000], later)


# ---- names of workers

DEVICE = "/job:worker/replica:0/task:1/device:GPU:0"


def seen_with_workers(ask_original: Ask, run: Path, workers: list[str]) -> dict[str, Any]:
    manager = CollectionManager()
    manager.set_num_workers(len(workers))
    for number, worker in enumerate(workers):
        write(run, [batch(0, Entry("x", np.full(3, number)))], worker, manager)
    assert create_trial(run).workers() == sorted(workers)
    return ask_original(run)


def test_worker_names_that_need_escaping(ask_original: Ask, tmp_path: Path) -> None:
    seen = seen_with_workers(ask_original, tmp_path / "run", [DEVICE, "host a/0", "rank:1"])
    # Devices are spelled as the original spells them; others it knows by their escaped names.
    names = [DEVICE, "host%20a%2F0", "rank%3A1"]
    assert seen["workers"] == names
    values = values_of(seen, "x")
    assert {worker: value.tolist() for (_, worker), value in values.items()} == {
        name: [number] * 3 for number, name in enumerate(names)
    }


@pytest.mark.parametrize("worker", ["node__1", "_hidden"])
def test_underscores_that_mean_a_device_to_the_original(
    ask_original: Ask, tmp_path: Path, worker: str
) -> None:
    seen = seen_with_workers(ask_original, tmp_path / "run", [worker])
    # It takes the name from two kinds of files, with two rules.
    (found,) = (name for _, name in values_of(seen, "x"))
    assert found == seen["workers"][0]
    assert unquote(found) == worker
