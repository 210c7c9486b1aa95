"""Letting go of index files that have been seen, as whoever follows a long job does."""

from __future__ import annotations

from smdebug.rules import RuleRunner
from smdebug.storage.format.keys import END_KEY
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import default_batch, default_collections
from smdebug.trials import Trial


def test_steps_stay_known_and_later_rows_there() -> None:
    store = MemoryStore()
    writer = RunWriter(store, "worker_0", "v2")
    writer.write_collections(default_collections().to_json())
    for step in range(10):
        writer.submit(default_batch("worker_0", step))
        writer.finish_step()
        if step % 2:
            writer.flush()
    trial = Trial("memory://run", store=store)
    before = trial.tensor("loss").series()[1]
    trial.evict_until(5)
    assert trial.steps() == list(range(10))
    assert trial.tensor_names() == ["fc.weight", "loss"]
    assert set(trial.rows_between(0, 10, ["step"])["step"].to_pylist()) == set(range(6, 10))
    assert trial.tensor("loss").value(9) == before[9]
    # A run that is closed has its files joined, and everything is there again.
    writer.close(end=True)
    trial.refresh_data()
    assert trial.steps() == list(range(10))
    assert trial.tensor("loss").series()[1].tolist() == before.tolist()


def test_a_job_is_followed_with_few_files_in_memory() -> None:
    store = MemoryStore()
    writer = RunWriter(store, "worker_0", "v2")
    writer.write_collections(default_collections().to_json())
    trial, runner = None, None
    for step in range(40):
        writer.submit(default_batch("worker_0", step))
        writer.finish_step()
        writer.flush()
        if runner is None:
            trial = Trial("memory://run", store=store)
            runner = RuleRunner(trial, ["UnchangedTensor:collection_names=weights"], own=True)
        assert trial is not None
        # A listing that took long, as on a busy machine, is put off; this is not about that.
        trial.refresh_data()
        runner.look()
        assert runner.last_step == step
        assert len(trial._reader._files) <= 1
    writer.close(end=True)
    assert END_KEY in list(store.list())
    assert runner is not None
    report = runner.finish()
    assert (report.last_step, report.outcomes[0].status) == (39, "passed")
    assert trial is not None
    assert trial.steps() == list(range(40))
