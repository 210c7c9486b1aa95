"""Stopping a SageMaker training job."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.rules.action import aws
from smdebug.rules.action.base import Action

if TYPE_CHECKING:
    from smdebug.storage.findings import Finding

logger = logging.getLogger("smdebug.rules")

_SHOWN_JOBS = 5


class StopTrainingAction(Action):
    """Stops the SageMaker job whose name starts with a prefix, when exactly one such job runs.

    Jobs are looked for when the rule fires first, not before: making a rule asks AWS for nothing.
    Once AWS has said which jobs run, the matter is settled: a job that comes later under the same
    prefix may be somebody else's. When AWS did not answer, the next finding tries again.

    Args:
        rule_name: the rule that stops it.
        training_job_prefix: how the name of the job starts; its case matters.

    Raises:
        SMDebugValueError: the prefix is empty, which would be every job.

    Example:
        >>> StopTrainingAction("VanishingGradient", "resnet-2024")
        StopTrainingAction(resnet-2024)
    """

    def __init__(self, rule_name: str, training_job_prefix: Any) -> None:
        super().__init__(rule_name)
        self.training_job_prefix = validation.text(
            "training_job_prefix", training_job_prefix
        ).strip()
        self._settled = not aws.available()

    @property
    def target(self) -> str:
        return self.training_job_prefix

    @property
    def settled(self) -> bool:
        return self._settled

    def _act(self, finding: Finding, left_out: int) -> None:
        if self._settled:
            return
        client = aws.client("sagemaker")
        jobs = self._running(client)
        if len(jobs) == 1:
            client.stop_training_job(TrainingJobName=jobs[0])
            logger.warning("training job %s was told to stop by %s", jobs[0], finding)
        else:
            logger.warning(
                "rule %s stops no training job: exactly one that runs must have a name that starts "
                "with %r, got %s",
                self.rule_name, self.training_job_prefix, _listed(jobs),
            )  # fmt: skip
        self._settled = True

    def _running(self, client: Any) -> list[str]:
        pages = client.get_paginator("list_training_jobs").paginate(
            NameContains=self.training_job_prefix, StatusEquals="InProgress"
        )
        names = [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
        return [name for name in names if name.startswith(self.training_job_prefix)]


def _listed(jobs: list[str]) -> str:
    if not jobs:
        return "none"
    more = ", ..." if len(jobs) > _SHOWN_JOBS else ""
    return f"{len(jobs)}: {', '.join(jobs[:_SHOWN_JOBS])}{more}"
