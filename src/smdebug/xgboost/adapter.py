"""XGBoost's training callbacks as steps, and the sources of the tensors that are saved."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from xgboost import collective
from xgboost.core import XGBoostError

from smdebug.config.collection import CollectionKeys
from smdebug.config.log import WarnOnce
from smdebug.hook.adapter import Adapter
from smdebug.hook.worker import Worker
from smdebug.xgboost.explain import AverageShap, FullShap, Labels, Predictions
from smdebug.xgboost.inputs import Inputs
from smdebug.xgboost.metrics import Hyperparameters, Metrics
from smdebug.xgboost.naming import BIAS, DEFAULT_COLLECTIONS, IMPORTANCE_TYPES, feature_names
from smdebug.xgboost.rounds import RoundCounter, booster_of
from smdebug.xgboost.scalars import capture_scalars
from smdebug.xgboost.source import NotAvailable, error_message
from smdebug.xgboost.trees import FeatureImportance, TreeModel, Trees

if TYPE_CHECKING:
    from smdebug.hook.capture import StepCapture
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import StepCache, StepPlan
    from smdebug.storage.stop_requests import StopRequest
    from smdebug.xgboost.rounds import Round
    from smdebug.xgboost.source import Source

logger = logging.getLogger("smdebug.hook")

# A model or data without some tensors is not a failure; any other exception is.
_EXPECTED = (NotAvailable, XGBoostError)
_EXPLAINED = {CollectionKeys.AVERAGE_SHAP, CollectionKeys.FULL_SHAP, CollectionKeys.ALL}


class XGBoostAdapter(Adapter):
    """Makes a step of every round of boosting.

    Args:
        pipeline: the pipeline to call.

    Attributes:
        inputs: the hyperparameters and data that the user gave the hook.
    """

    framework = "XGBoost"
    default_collections = DEFAULT_COLLECTIONS
    always_saved = frozenset({CollectionKeys.METRICS})
    default_save_interval = 10

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self._rounds = RoundCounter()
        # Kept: the run is closed after the workers have disconnected.
        self._known_worker: Worker | None = None
        # The sources that save or observe something at a kind of step.
        self._relevant: StepCache[tuple[Source, ...]] = pipeline.new_cache()
        # Logged once per training run: five types of importance may lack the same.
        self._warnings = WarnOnce(logger)
        self._incomplete: list[str] = []
        self.set_inputs(Inputs())

    def set_inputs(self, inputs: Inputs) -> None:
        """Replace the inputs, also in the middle of training."""
        self.inputs = inputs
        self._reset_sources()

    def _reset_sources(self) -> None:
        model = TreeModel()
        inputs = self.inputs
        self._sources: tuple[Source, ...] = (
            Metrics(),
            Hyperparameters(inputs.hyperparameters),
            Labels(inputs.validation_data),
            Predictions(inputs.validation_data),
            *(FeatureImportance(kind, model) for kind in IMPORTANCE_TYPES),
            AverageShap(inputs.train_data, inputs.shap_samples),
            FullShap(inputs.train_data, inputs.shap_samples),
            Trees(model),
        )
        self._relevant.clear()

    # ---- callbacks of XGBoost

    def begin_training(self, model: Any) -> None:
        """Begin a training run."""
        if not self.pipeline.active:
            logger.warning(
                "this hook saves nothing: it was closed, or created in another process; create "
                "one in the process that trains"
            )
            return
        # Not guarded: an invalid configuration always raises.
        self.pipeline.make_ready()
        # XGBoost itself reports invalid parameters right after this.
        with self.pipeline.guarded, contextlib.suppress(XGBoostError):
            if not self._rounds.begin_training(model):
                logger.warning(
                    "a training run is not saved: the hook is in use by another thread; give "
                    "each concurrent training run its own hook"
                )
                return
            # This model may have what the previous one had not.
            self._reset_sources()
            self._warnings.clear()
            booster = booster_of(model)
            explained = not _EXPLAINED.isdisjoint(self.pipeline.collections.included)
            if explained and booster is not None and BIAS in feature_names(booster):
                self._include_bias_feature()

    def begin_round(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Begin a round; return whether training must end instead."""
        if not self._in_training():
            return False
        if self.pipeline.stop_if_requested():
            return True
        self.pipeline.begin_step(self._rounds.begin_round(model, epoch, evals_log))
        return False

    def end_round(self) -> None:
        """Save the round that was begun."""
        if self._in_training():
            self._save_round(self._rounds.end_round())

    def end_training(self) -> None:
        """Publish everything that was saved; another training run may follow."""
        if self._in_training():
            # A callback that ended training may have kept `end_round` from being called.
            self._save_round(self._rounds.end_training())
            self.pipeline.flush()

    def _in_training(self) -> bool:
        return self.pipeline.active and self._rounds.in_training

    def _include_bias_feature(self) -> None:
        """Include a feature with the name that the bias of the model usually has."""
        logger.warning(
            "a feature is called %s: average_shap/%s and full_shap/%s are that feature's; the bias "
            "of the model is the last column of full_shap", BIAS, BIAS, BIAS,
        )  # fmt: skip
        for name in (CollectionKeys.AVERAGE_SHAP, CollectionKeys.FULL_SHAP):
            self.pipeline.collections.manager.get(name).add(f"{name}/{BIAS}")

    # ---- saving a round

    def _save_round(self, ended: Round | None) -> None:
        if ended is None:
            return
        self._rounds.count(ended)
        capture = self.pipeline.current
        if capture is None or capture.plan is None:
            return
        with self.pipeline.guarded:
            # Observed tensors come first: one that is non-finite changes the plan of the step.
            observed = self._relevant_sources(capture.plan, ended, observed=True)
            for source in observed:
                self._offer(source, ended, capture)
            for source in self._relevant_sources(capture.plan, ended, observed=False):
                if source not in observed:
                    self._offer(source, ended, capture)

    def _relevant_sources(self, plan: StepPlan, ended: Round, observed: bool) -> tuple[Source, ...]:
        """Return the sources of tensors that are observed, or else saved, at such steps."""

        def matching() -> tuple[Source, ...]:
            matches = plan.trigger if observed else plan.saves
            return tuple(each for each in self._sources if any(map(matches, each.names(ended))))

        # A metric may be evaluated for the first time at any round.
        return self._relevant.get(plan, (observed, len(ended.known_metrics)), matching)

    def _offer(self, source: Source, ended: Round, capture: StepCapture) -> None:
        """Offer the tensors of a source; without some of them, the rest of the round is saved."""
        try:
            tensors = list(source.tensors(ended))
        except Exception as error:
            expected = isinstance(error, _EXPECTED)
            if self.pipeline.options.on_error == "raise" and not expected:
                raise
            if not isinstance(error, NotAvailable) or error.permanent:
                # Not tried again in this training run.
                self._sources = tuple(each for each in self._sources if each is not source)
                self._relevant.clear()
            why = error_message(error) if expected else f"{type(error).__name__}: {error}"
            message = f"{source.what} cannot be saved: {why}"
            self._warnings.warning(message, message, exc_info=None if expected else error)
            if not expected:
                self._incomplete.append(f"{source.what} from step {capture.step.number} on")
            return
        plan = capture.plan
        assert plan is not None
        if not plan.armed:
            tensors = capture_scalars(tensors, plan, capture)
        for name, value in tensors:
            self.pipeline.offer(name, np.array([value]) if isinstance(value, float) else value)

    # ---- for the pipeline

    def is_tensor(self, value: Any) -> bool:
        """Return False: XGBoost has no tensors; what the user saves is checked and copied."""
        return False

    def worker(self) -> Worker:
        """Return the rank in XGBoost's collective."""
        count = collective.get_world_size()
        if count > 1:
            rank = collective.get_rank()
            name = self.pipeline.options.worker or f"worker_{rank}"
            self._known_worker = Worker(name, count, rank == 0)
        return self._known_worker or super().worker()

    def stop_training(self, request: StopRequest) -> None:
        """Do nothing: `begin_round` returns True, and XGBoost returns the model so far."""

    def detach(self) -> None:
        """Report what is missing, and free what was made of the user's data."""
        if self._incomplete:
            logger.warning(
                "the run in %s is not complete: it lacks %s",
                self.pipeline.run.out_dir, ", ".join(dict.fromkeys(self._incomplete)),
            )  # fmt: skip
        self._rounds.reset()
        for data in (self.inputs.train_data, self.inputs.validation_data):
            if data is not None:
                data.drop_samples()
