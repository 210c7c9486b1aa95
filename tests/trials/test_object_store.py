"""Trials in a bucket: the same answers as from a directory, in few requests."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import boto3
import numpy as np
import pytest

from smdebug.exceptions import MissingCollectionFiles, SMDebugError, TrialNotFound
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing.runs import make_run
from smdebug.trials import S3Trial, create_trial

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    # botocore, not us.
    "ignore:.*utcnow.*:DeprecationWarning"
)

WORKERS = ["worker_0", "worker/1"]
STEPS = [0, 1, 2, 5]
_NUMBERS = itertools.count()


@pytest.fixture
def url(bucket: str) -> str:
    return f"s3://{bucket}/jobs/run-{next(_NUMBERS)}__x"


def data(worker: str, step: int) -> StepBatch:
    random = np.random.default_rng([step, len(worker)])
    mode, mode_step = (ModeKeys.TRAIN, step) if step < 5 else (ModeKeys.EVAL, 0)
    weight = random.standard_normal((30, 10)).astype(np.float32)
    entries = [
        Entry("loss", np.asarray(random.random())),
        Entry("weight", weight, {"l2": float(np.linalg.norm(weight.astype(np.float64)))}),
        Entry("gradient", reductions={"mean": float(step)}, shape=(3,), dtype="float32"),
        Entry("text", np.array(["x", f"{worker} {step}"])),
    ]
    return StepBatch(step, mode, mode_step, entries, time=float(step))


@pytest.fixture(scope="module")
def run(bucket: str, format: str) -> str:
    """A finished run of both workers."""
    url = f"s3://{bucket}/finished/{format}"
    make_run(url, STEPS, WORKERS, format, data)
    return url


def test_everything_is_as_in_a_directory(run: str, format: str, tmp_path: Path) -> None:
    written = make_run(tmp_path, STEPS, WORKERS, format, data)
    remote, local = create_trial(run), create_trial(tmp_path)
    assert remote.loaded_all_steps
    assert remote.name == format
    for question in (
        lambda trial: trial.steps(),
        lambda trial: trial.steps(ModeKeys.EVAL),
        lambda trial: trial.tensor_names(),
        lambda trial: trial.tensor_names(step=5, collection="weights"),
        lambda trial: trial.workers(),
        lambda trial: sorted(mode.name for mode in trial.modes()),
        lambda trial: sorted(trial.collections()),
        lambda trial: trial.to_arrow().drop_columns(["event_file"]).to_pylist(),
        lambda trial: trial.tensor("weight").shapes(),
        lambda trial: trial.tensor("gradient").reduction_values(2),
        lambda trial: [list(part) for part in trial.tensor("loss").series(worker="worker/1")],
        lambda trial: [list(part) for part in trial.tensor("weight").series("l2")],
        lambda trial: [list(part) for part in trial.tensor("weight").series("median")],
    ):
        assert question(remote) == question(local)
    for (worker, step), batch in written.items():
        for entry in batch.entries:
            if entry.value is None:
                continue
            value = remote.tensor(entry.name).value(step, worker=worker)
            np.testing.assert_array_equal(value, entry.value)
            assert not value.flags.writeable


def test_sql(run: str) -> None:
    frame = create_trial(run).sql(
        "select step, mean from run where tensor = 'gradient' and worker = 'worker_0' order by 1"
    )
    assert frame["step"].tolist() == STEPS
    assert frame["mean"].tolist() == [float(step) for step in STEPS]


def test_many_values_take_few_requests(url: str, calls: list[tuple[str, str]]) -> None:
    arrays = {step: np.full((200,), step, np.float32) for step in range(40)}
    make_run(
        url, arrays,
        data=lambda worker, step: StepBatch(step, ModeKeys.TRAIN, step, [Entry("x", arrays[step])]),
    )  # fmt: skip

    def gets(read: Any) -> tuple[int, dict[int, Any]]:
        trial = create_trial(url)
        calls.clear()
        values = read(trial.tensor("x"))
        return sum(method == "read" and "events/" in key for method, key in calls), values

    one_by_one, values = gets(lambda tensor: {step: tensor.value(step) for step in arrays})
    assert one_by_one == 40
    together, at_once = gets(lambda tensor: tensor.values(steps=arrays))
    assert together == 1
    every, all_values = gets(lambda tensor: tensor.values())
    assert every == 1
    some, few = gets(lambda tensor: tensor.values(steps=[3, 5, 39]))
    assert some == 1
    assert sorted(few) == [3, 5, 39]
    for step, array in arrays.items():
        for found in (values, at_once, all_values):
            np.testing.assert_array_equal(found[step], array)


def test_opening_reads_no_raw_data_and_lists_no_event_files(
    run: str, calls: list[tuple[str, str]]
) -> None:
    trial = create_trial(run)
    trial.tensor_names()
    trial.tensor("weight").steps()
    assert not [key for method, key in calls if method == "read" and key.startswith("events/")]
    assert not [call for call in calls if call[0] == "list" and call[1] in ("", "events/")]
    calls.clear()
    trial.steps()
    trial.tensor("weight").steps()
    assert calls == []


def test_a_live_run(url: str, format: str) -> None:
    make_run(url, [0, 1], WORKERS, format, data, end=False)
    trial = create_trial(url)
    assert trial.steps() == [0, 1]
    assert not trial.loaded_all_steps
    make_run(url, [2], WORKERS, format, data, end=False)
    trial.refresh_data()
    assert trial.steps() == [0, 1, 2]
    make_run(url, [5], WORKERS, format, data)
    trial.refresh_data()
    assert trial.steps() == STEPS
    assert trial.loaded_all_steps
    np.testing.assert_array_equal(
        trial.tensor("weight").value(5), data("worker_0", 5).entries[1].value
    )


def test_s3_trial(run: str, bucket: str, format: str) -> None:
    trial = S3Trial("mine", bucket, f"finished/{format}", range_steps=(1, None))
    assert trial.name == "mine"
    assert trial.path == run
    assert trial.steps() == [1, 2, 5]


def test_a_missing_bucket_is_an_error_at_once(bucket: str) -> None:
    with pytest.raises(TrialNotFound, match="no-such-bucket"):
        create_trial("s3://no-such-bucket/run")


def test_a_missing_bucket_is_an_error_when_waited_for_too(bucket: str) -> None:
    # A bucket does not come by itself; nor should the message be one of some library.
    with pytest.raises(SMDebugError, match="no-such-bucket"):
        create_trial("s3://no-such-bucket/run", wait_seconds=0.3)


def test_an_empty_place_in_a_bucket_is_waited_for(url: str) -> None:
    with pytest.raises(MissingCollectionFiles, match="jobs/run"):
        create_trial(url, wait_seconds=0.1)


def test_something_else_in_a_bucket(url: str, bucket: str) -> None:
    key = url.removeprefix(f"s3://{bucket}/") + "/notes.txt"
    boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=b"x")
    with pytest.raises(TrialNotFound, match="notes"):
        create_trial(url)
