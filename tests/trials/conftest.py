"""Runs and stores that the tests of trials share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from tests.trials.mixed_run import Truth, make_mixed

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import Buffer, Store, open_store
from smdebug.testing.runs import make_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
# Global step to mode and mode step; 1, 3, 7 and 8 were not saved.
PLAN = {0: (TRAIN, 0), 2: (TRAIN, 2), 4: (TRAIN, 4), 5: (EVAL, 0), 6: (EVAL, 1), 9: (TRAIN, 7)}


class CountingStore:
    """A store that notes every call."""

    def __init__(self, inner: Store, calls: list[tuple[str, str]]) -> None:
        self.url, self.parallel, self.remote = inner.url, inner.parallel, inner.remote
        self._inner = inner
        self._calls = calls

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        self._calls.append(("read", key))
        return self._inner.read(key, start, length)

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        self._calls.append(("write", key))
        self._inner.write(key, chunks)

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        self._calls.append(("list", prefix))
        return self._inner.list(prefix, after)

    def delete(self, key: str) -> None:
        self._calls.append(("delete", key))
        self._inner.delete(key)

    def exists(self) -> bool:
        self._calls.append(("exists", ""))
        return self._inner.exists()

    def path(self, key: str) -> str | None:
        return self._inner.path(key)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the trials opened in this test ask of their stores, as (method, key or prefix)."""
    noted: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "smdebug.trials.trial.open_store", lambda path: CountingStore(open_store(path), noted)
    )
    return noted


@pytest.fixture(scope="module", params=["v1", "v2"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def float32(value: Any) -> float:
    return float(np.float32(value))


def _array(worker: str, step: int, name: str, shape: tuple[int, ...]) -> Any:
    random = np.random.default_rng([step, *worker.encode(), *name.encode()])
    return random.standard_normal(shape).astype(np.float32)


def rich_batch(worker: str, step: int) -> StepBatch:
    """Every kind of thing a step can hold."""
    mode, mode_step = PLAN[step]
    fc = _array(worker, step, "fc/weight:0", (3, 4))
    gradient = _array(worker, step, "gradient/fc", (5, 2)).astype(np.float64)
    both = _array(worker, step, "both", (7,))
    mixed = _array(worker, step, "mixed", (2, 2))
    mixed_l1 = float32(np.abs(mixed.astype(np.float64)).sum())
    entries = [
        Entry("loss", np.asarray(np.float32(100 * step + len(worker)))),
        Entry("count", np.asarray(np.int64(2**53 + 1 + step))),
    ]
    if mode is TRAIN:
        entries += [
            Entry("fc/weight:0", fc),
            Entry(
                "gradient/fc",
                reductions={
                    "l2": float(np.sqrt((gradient**2).sum())),
                    "abs_mean": float(np.abs(gradient).mean()),
                    "min": float(gradient.min()),
                },
                shape=gradient.shape,
                dtype="float64",
            ),
            Entry(
                "both",
                both,
                {
                    "mean": float32(both.astype(np.float64).mean()),
                    "std": float32(both.astype(np.float64).std()),
                    "abs_max": float32(np.abs(both).max()),
                },
            ),
            Entry("big", _array(worker, step, "big", (200, 200))),
            Entry("bare", reductions={"max": float(step)}),
            Entry("text", np.array(["a", "ünï", f"step {step}"])),
            Entry("half", _array(worker, step, "half", (4,)).astype(ml_dtypes.bfloat16)),
            Entry("empty", np.zeros((0, 3), np.float32)),
        ]
        mixed_entries = {
            0: Entry("mixed", mixed),
            2: Entry("mixed", reductions={"l1": mixed_l1}, shape=(2, 2), dtype="float32"),
            4: Entry("mixed", shape=(2, 2), dtype="float32"),
            9: Entry("mixed", mixed, {"l1": mixed_l1}),
        }
        entries.append(mixed_entries[step])
    else:
        entries += [Entry("eval_only", _array(worker, step, "eval_only", (3,)))]
        entries += [
            Entry(name, np.asarray([number, step], np.int32))
            for number, name in enumerate(
                ["net_input_10", "net_input_2", "labels_1", "labels_0", "predictions_0"]
            )
        ]
    if worker == "worker_1":
        entries.append(Entry("second", _array(worker, step, "second", (2,))))
    return StepBatch(step, mode, mode_step, entries, time=1000.0 + step)


@pytest.fixture(scope="module")
def rich(
    tmp_path_factory: pytest.TempPathFactory, format: str
) -> tuple[str, dict[tuple[str, int], StepBatch]]:
    """The path of a finished run of two workers and two modes, and what was written."""
    path = str(tmp_path_factory.mktemp("rich") / "run__1")
    manager = CollectionManager(
        [
            Collection("losses", include_regex="^loss$"),
            Collection("inputs", tensor_names=["net_input_2", "net_input_10"]),
            Collection("named", include_regex="^gradient/", tensor_names=["both", "not saved"]),
        ]
    )
    written = make_run(
        path, PLAN, ["worker_0", "worker_1"], format, rich_batch, collections=manager
    )
    return path, written


@pytest.fixture(scope="module")
def mixed(format: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a bit of everything."""
    path = tmp_path_factory.mktemp("mixed") / "run"
    make_mixed(path, format=format)
    return path


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """What is in it."""
    return make_mixed(tmp_path_factory.mktemp("truth") / "run")
