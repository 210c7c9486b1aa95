"""Whatever happens to the place a run is saved to: training ends as it would have without a hook.

Each training runs in a process of its own; see `tests/faults/programs/unharmed.py`. It is compared
with the same one without a hook (weights and random generators bit for bit, exit code), and what
the log says is lost with what a reader finds.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.tally import FULL, Tally, amount
from tests.faults.training_jobs import TrainingJobs, wrongs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.unreliable import Unreliable

STEPS = 14
# What training of this width saves does not fit on a disk of 8 MB.
WIDE: dict[str, Any] = {"width": 300, "steps": 24}


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainingJobs]:
    found = TrainingJobs(tmp_path_factory.mktemp("trainings"))
    yield found
    found.close()


def somehow(seed: int, steps: int = STEPS) -> dict[str, Any]:
    """A way to save, as the seed says."""
    chosen = random.Random(seed)
    options: dict[str, Any] = {"format": chosen.choice(["v1", "v2"])}
    options |= chosen.choice([{}, {"flush_seconds": 0.0}, {"queue_bytes": 1000}])
    options |= chosen.choice([{}, {"export_tensorboard": True}, {"rules": ["NonFinite"]}])
    at = chosen.randrange(1, steps)
    flushes = chosen.sample(range(steps), chosen.randrange(4))
    logs = chosen.choice([{}, {}, {"SMDEBUG_LOG_PATH": "/dev/full"}])
    return {
        "options": options, "at": at, "flushes": flushes, "variables": logs,
        "closes": chosen.random() < 0.8,
    }  # fmt: skip


def attempts(
    trainings: TrainingJobs,
    tally: Tally,
    what: str,
    tries: int,
    fields: Callable[[int], dict[str, Any]],
    happens: Mapping[str, Callable[[], object]] | None = None,
    expects: Callable[[Any], str] = lambda answer: "",
    **judged: Any,
) -> None:
    """Run training jobs, and check that all guarantees hold.

    Args:
        trainings: runs them.
        tally: counts them.
        what: is done to them.
        tries: how many of them.
        fields: those of a job, by the seed.
        happens: as `TrainingJobs.run` takes it.
        expects: says what else is wrong with an answer; "" if nothing is.
        judged: as `wrongs` takes it.
    """
    found: dict[int, list[str]] = {}
    refused: set[str] = set()
    failed = tried = 0
    for seed in range(tries):
        job = {**somehow(seed), **fields(seed)}
        answer = trainings.run(happens, **job)
        if answer.refused:
            refused.add(answer.refused)
            continue
        tried += 1
        failed += "is not complete" in answer.log
        wrong = wrongs(trainings, answer, **judged, **job)
        wrong += filter(None, [expects(answer)])
        if wrong:
            found[seed] = [*wrong, str(job)]
    remark = "; ".join([f"{failed} said they are not complete, and why", *refused])
    tally.add(1, what, tried, tried - len(found), remark)
    assert not found, "\n".join(f"seed {seed}: {wrong}" for seed, wrong in found.items())
    if refused:
        pytest.skip(f"the operating system says no: {refused}")


def incomplete(answer: Any) -> str:
    """The fault must have been felt, or nothing was tried."""
    return "" if "is not complete" in answer.log else "nothing has failed"


def test_disk_full_during_training(trainings: TrainingJobs, tally: Tally) -> None:
    def fields(seed: int) -> dict[str, Any]:
        # Queues of all sizes: it fills up during training, or only when the hook closes.
        queue = random.Random(seed).choice([{}, {"queue_bytes": 1 << 20}])
        return {**WIDE, **somehow(seed, 24), "fault": "full",
                "options": {**somehow(seed)["options"], **queue}}  # fmt: skip

    attempts(trainings, tally, "a disk of 8 MB", amount(40, 2), fields, expects=incomplete)


def test_disk_full_at_close(trainings: TrainingJobs, tally: Tally) -> None:
    def fields(seed: int) -> dict[str, Any]:
        # Every second one has nothing left to do but to join its index files.
        flushes = list(range(STEPS)) if seed % 2 else [3]
        options = {**somehow(seed)["options"], "format": "v2"}
        return {"fault": "filled", "at": STEPS, "flushes": flushes, "options": options}

    attempts(trainings, tally, "disk full when closing, joining", amount(20, 2), fields)


def test_directory_removed_during_training(trainings: TrainingJobs, tally: Tally) -> None:
    def fields(seed: int) -> dict[str, Any]:
        return {"fault": "removed", "flushes": [somehow(seed)["at"] - 1]}

    attempts(trainings, tally, "directory removed", amount(20, 1), fields, gone=True)


@pytest.mark.parametrize("fault", ["replaced", "read-only", "denied"])
def test_directory_becomes_unwritable(trainings: TrainingJobs, tally: Tally, fault: str) -> None:
    attempts(
        trainings, tally, f"directory {fault} during the run", amount(20, 1),
        lambda seed: {"fault": fault}, expects=incomplete,
    )  # fmt: skip


def test_directory_unwritable_from_the_start(trainings: TrainingJobs, tally: Tally) -> None:
    def fields(seed: int) -> dict[str, Any]:
        return {"fault": ["denied at first", "denied above"][seed % 2]}

    attempts(trainings, tally, "no right from the start", amount(10, 1), fields, expects=incomplete)


def test_too_many_open_files(trainings: TrainingJobs, tally: Tally) -> None:
    def fields(seed: int) -> dict[str, Any]:
        beside = {"export_tensorboard": seed % 2 == 0, "rules": ["NonFinite"]}
        return {"fault": "no files", "options": {**somehow(seed)["options"], **beside}}

    attempts(trainings, tally, "too many open files", amount(20, 1), fields, expects=incomplete)


def test_out_of_memory_in_the_writer(trainings: TrainingJobs, tally: Tally) -> None:
    def fields(seed: int) -> dict[str, Any]:
        # The copy of 32 MB fits; what the writer makes of it, float32 or float64, does not. Every
        # third has no room for the copy either.
        options = [{"format": "v1"}, {"export_tensorboard": True}][seed % 2]
        return {"fault": "no memory", "large": 32, "memory": 8 if seed % 3 == 2 else 50,
                "flushes": list(range(STEPS)), "options": options}  # fmt: skip

    attempts(trainings, tally, "no memory left", amount(12, 1), fields, expects=incomplete)


def test_store_fails_at_random(trainings: TrainingJobs, tally: Tally) -> None:
    def fields(seed: int) -> dict[str, Any]:
        chosen = random.Random(seed)
        patience = {"SMDEBUG_STORE_RETRY_SECONDS": chosen.choice(["0", "0.01"])}
        return {"failing": chosen.choice([0.02, 0.1, 0.5, 1.0]), "seed": seed,
                "remote": seed % 4 == 0, "variables": patience, "checkpoints": True}  # fmt: skip

    attempts(trainings, tally, "a store that raises at random", amount(200, 5), fields)


IN_SHORT = [503, "refuse"]
FOR_GOOD = [500, 503, 403, "refuse", "cut request", "cut answer", "hang"]


@pytest.mark.filterwarnings("ignore:.*utcnow.*:DeprecationWarning")
@pytest.mark.parametrize("fault", FOR_GOOD if FULL else IN_SHORT)
def test_bucket_fails_permanently(
    trainings: TrainingJobs, tally: Tally, proxy: Unreliable, fault: int | str
) -> None:
    def fields(seed: int) -> dict[str, Any]:
        return {**bucket_fields(f"{fault}-{seed}".replace(" ", "-")), "at": 1 + seed % 5}

    def strike() -> None:
        proxy.break_down(fault)

    attempts(
        trainings, tally, f"S3 that fails for good: {fault}", amount(2, 1), fields,
        {"now": strike, "over": proxy.heal}, incomplete, twice=fault == "cut answer",
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*utcnow.*:DeprecationWarning")
def test_slow_bucket(trainings: TrainingJobs, tally: Tally, proxy: Unreliable) -> None:
    # It answers nothing until training has made its last step, and loses nothing: there is room
    # in the queue for all of it.
    def fields(seed: int) -> dict[str, Any]:
        options = {**somehow(seed)["options"], "queue_bytes": 1 << 26}
        return {**bucket_fields(f"slow-{seed}"), "flushes": [], "options": options}

    attempts(
        trainings, tally, "S3 that is slow", amount(4, 1),
        fields,
        {"now": proxy.hold, "closing": proxy.release, "over": proxy.heal},
        lambda answer: "steps are lost" if "is not complete" in answer.log else "",
    )  # fmt: skip


def bucket_fields(name: str) -> dict[str, Any]:
    variables = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
    variables |= {"SMDEBUG_STORE_RETRY_SECONDS": "0.5", "no_proxy": "*"}
    return {"fault": "ask", "url": f"s3://runs/{name}", "variables": variables}


def test_failing_side_outputs_do_not_affect_the_run(trainings: TrainingJobs, tally: Tally) -> None:
    """Metrics of SageMaker, files of TensorBoard, states of checkpoints, the log."""

    def prepare(work: Path) -> None:
        work.mkdir()
        (work / "file").write_text("in the way")
        # Where a file is to be, there is a directory.
        (work / "checkpoints" / "metadata.json").mkdir(parents=True)
        (work / "checkpoints" / "metadata.json" / "x").write_text("in the way")

    found = []
    tries = amount(8, 2)
    for seed in range(tries):
        job: dict[str, Any] = {"checkpoints": True, "flushes": [2], "options": {"format": "v1"}}
        place = trainings.next_place() / "file"
        variables = {"SMDEBUG_LOG_PATH": f"{place}/log"}
        if seed % 2:
            variables |= {"TRAINING_JOB_NAME": "job", "SAGEMAKER_METRICS_DIRECTORY": str(place)}
        job |= {"variables": variables}
        job["options"]["tensorboard_dir"] = str(place)
        answer = trainings.run(prepare=prepare, **job)
        wrong = wrongs(trainings, answer, **job)
        if "is not complete" in answer.log:
            wrong.append("the run has failed")
        if "Stopped writing TensorBoard files" not in answer.log:
            wrong.append("nothing was said of TensorBoard")
        if seed % 2 and "Stopped writing SageMaker metrics" not in answer.log:
            wrong.append("nothing was said of metrics")
        found += wrong
    tally.add(1, "metrics, TensorBoard, checkpoints, log fail", tries, tries - bool(found))
    assert not found


def test_on_error_raise_raises_once(trainings: TrainingJobs, tally: Tally) -> None:
    def fields(seed: int) -> dict[str, Any]:
        options = {**somehow(seed)["options"], "on_error": "raise"}
        return {"fault": ["denied", "replaced", "no files"][seed % 3], "options": options,
                "closes": True}  # fmt: skip

    def once(answer: Any) -> str:
        return "" if len(answer.raised) == 1 else f"raised {answer.raised}"

    attempts(trainings, tally, 'on_error="raise": raised once', amount(20, 2), fields, expects=once)
