"""The hook for XGBoost.

It has over 400 lines because a quarter of them document its arguments, and more methods than most
because it is a callback, four of whose arguments are attributes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from xgboost import collective
from xgboost.callback import TrainingCallback
from xgboost.core import XGBoostError

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.options import DEFAULT_QUEUE_BYTES, HookOptions
from smdebug.config.reduction_config import ReductionConfig
from smdebug.exceptions import SMDebugTypeError
from smdebug.hook.capture import ArrayCapture
from smdebug.hook.hook import BaseHook
from smdebug.hook.worker import Worker
from smdebug.xgboost.data import Data
from smdebug.xgboost.explain import AverageShap, FullShap, Labels, Predictions
from smdebug.xgboost.metrics import Hyperparameters, Metrics
from smdebug.xgboost.naming import BIAS, DEFAULT_COLLECTIONS, IMPORTANCE_TYPES, feature_names
from smdebug.xgboost.numbers import Numbers
from smdebug.xgboost.rounds import Rounds, booster_of
from smdebug.xgboost.source import NotAvailable, Round, reason
from smdebug.xgboost.trees import FeatureImportance, TreeCheck, Trees

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from smdebug.config.json_config import JsonConfigSource
    from smdebug.config.save_config import SaveConfig, SaveConfigMode
    from smdebug.hook.capture import Capture, StepCapture
    from smdebug.hook.plan import SaveRequest, StepPlan
    from smdebug.storage.stop_requests import StopRequest
    from smdebug.xgboost.source import Source

logger = logging.getLogger("smdebug.hook")

DEFAULT_SAVE_INTERVAL = 10
DEFAULT_SHAP_SAMPLES = 10_000
_RAW = ReductionConfig(save_raw_tensor=True)
# What a model or the data may not have; anything else is a failure.
_EXPECTED = (NotAvailable, XGBoostError)


class Hook(BaseHook, TrainingCallback):
    """Saves what happens in a training with XGBoost: a callback for `train`, `cv` and estimators.

    Every round of boosting is a step; training that goes on from a model goes on with its steps.

    Args:
        out_dir: where the run goes: a directory or a URL. In a SageMaker job it has a default.
        export_tensorboard: write TensorBoard files too.
        tensorboard_dir: where to; `<out_dir>/tensorboard` when None.
        dry_run: write nothing; say in the log what would be saved.
        reduction_config: has no effect, as in smdebug 1.0; a collection may have one of its own.
        save_config: when to save: a SaveConfig, a SaveConfigMode, a dict, or None for every 10th
            round.
        include_regex: regexes of tensors to save besides those of the collections.
        include_collections: names of collections to save: `hyperparameters`, `losses`,
            `predictions`, `labels`, `feature_importance`, `average_shap`, `full_shap`, `trees`;
            `metrics` is always saved.
        save_all: save everything.
        include_workers: `"one"`: only the first worker of a distributed job saves; `"all"`: every
            worker saves what it has.
        hyperparameters: what `hyperparameters` holds, by name.
        train_data: what SHAP values are computed of: a DMatrix or QuantileDMatrix, or a tuple of a
            path and `"csv"` or `"libsvm"`.
        validation_data: what `labels` and `predictions` are of; as `train_data`.
        worker: the name of this worker; `worker_<rank>` when None.
        format: `"v2"`, or `"v1"` for files that smdebug 1.0 reads; None leaves it to the
            environment.
        queue_bytes: how much may wait for the writer before training waits.
        flush_seconds: the longest time a finished round stays unpublished; None lets it grow with
            the age of the run.
        on_error: what a failure does: `"warn"` stops saving and lets training go on, `"raise"`
            raises when the next round begins.
        rules: rules to evaluate while training runs, such as `["TreeDepth:depth=8"]`. What they
            need is saved; without a `save_config`, metrics at every round and the rest at every
            10th.
        on_finding: `"warn"`: what a rule finds is logged and kept in the run; `"stop"`: boosting
            also ends before the next round, and training returns the model of the rounds so far.
        before_update: must be False: XGBoost shows nothing before it is used.
        actions: what else to do when a rule finds something, such as `[{"name": "webhook",
            "endpoint": "https://..."}]`.
        shap_samples: of how many rows of `train_data` SHAP values are computed, at most: evenly
            spread over all. They take long.
        resume: go on with the run in `out_dir`, finished or not. Steps are the rounds of the model,
            as always: train on from it with `xgb_model`.
        overwrite: delete the finished or interrupted run in `out_dir` first.

    Raises:
        SMDebugRuntimeError: there is no out_dir; it holds a finished run; another live process
            writes to it as this worker.
        SMDebugValueError, SMDebugTypeError: an argument makes no sense.

    Example:
        >>> hook = Hook("/tmp/run", include_collections=["trees"])  # doctest: +SKIP
        >>> evals = [(train, "train")]  # doctest: +SKIP
        >>> xgboost.train(params, train, evals=evals, callbacks=[hook])  # doctest: +SKIP
    """

    default_collections = DEFAULT_COLLECTIONS
    always_saved = frozenset({CollectionKeys.METRICS})
    default_save_interval = DEFAULT_SAVE_INTERVAL
    # What a hook that came from another process, and saves nothing, has.
    _hyperparameters: Mapping[str, Any] | None = None
    _train: Data | None = None
    _validation: Data | None = None
    _shap_samples = DEFAULT_SHAP_SAMPLES

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None = None,
        include_regex: Any = None,
        include_collections: Any = None,
        save_all: bool = False,
        include_workers: str = "one",
        hyperparameters: Mapping[str, Any] | None = None,
        train_data: Any = None,
        validation_data: Any = None,
        worker: str | None = None,
        format: str | None = None,
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
        flush_seconds: float | None = None,
        on_error: str = "warn",
        rules: Any = None,
        on_finding: str = "warn",
        before_update: bool = False,
        actions: Any = None,
        shap_samples: int = DEFAULT_SHAP_SAMPLES,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        if validation.boolean("before_update", before_update):
            self._refuse_before_update()
        ignored = isinstance(reduction_config, ReductionConfig) and reduction_config != _RAW
        options = HookOptions(
            out_dir, export_tensorboard, tensorboard_dir, dry_run,
            None if ignored else reduction_config, save_config,
            include_regex, include_collections, save_all, include_workers, worker, format,
            queue_bytes, flush_seconds, on_error, rules, on_finding, before_update, actions,
            resume, overwrite,
        )  # fmt: skip
        # Before anything is opened: they may make no sense.
        self.hyperparameters = hyperparameters
        self.train_data = train_data
        self.validation_data = validation_data
        self.shap_samples = shap_samples
        # What was said in this training: five kinds of importance may lack the same.
        self._said: set[str] = set()
        # What failed, for the end to say so.
        self._lost: list[str] = []
        self._numbers = Numbers()
        self._rounds = Rounds()
        self._sources: tuple[Source, ...] | None = None
        self._known_worker: Worker | None = None
        super().__init__(options)
        if ignored:
            logger.warning(
                "reduction_config has no effect in a hook for XGBoost: tensors are saved as they "
                "are; a collection may have a reduction_config of its own"
            )

    @classmethod
    def hook_from_config(cls, json_config_path: JsonConfigSource | None = None) -> Hook:
        """Does what `create_from_json_file` does."""
        return cls.create_from_json_file(json_config_path)

    # ---- what the model is explained with; may be set until it is needed

    @property
    def hyperparameters(self) -> Mapping[str, Any] | None:
        """What the collection `hyperparameters` holds."""
        return self._hyperparameters

    @hyperparameters.setter
    def hyperparameters(self, value: Mapping[str, Any] | None) -> None:
        if value is not None and not isinstance(value, Mapping):
            raise SMDebugTypeError(
                f"hyperparameters must be a dict, such as the params of xgboost.train, got "
                f"{validation.short_repr(value)}"
            )
        self._hyperparameters = value
        self._sources = None

    @property
    def train_data(self) -> Any:
        """What SHAP values are computed of."""
        return None if self._train is None else self._train.given

    @train_data.setter
    def train_data(self, value: Any) -> None:
        self._train = None if value is None else Data("train_data", value)
        self._sources = None

    @property
    def validation_data(self) -> Any:
        """What labels and predictions are of."""
        return None if self._validation is None else self._validation.given

    @validation_data.setter
    def validation_data(self, value: Any) -> None:
        self._validation = None if value is None else Data("validation_data", value)
        self._sources = None

    @property
    def shap_samples(self) -> int:
        """Of how many rows SHAP values are computed, at most."""
        return self._shap_samples

    @shap_samples.setter
    def shap_samples(self, value: int) -> None:
        self._shap_samples = validation.whole_number("shap_samples", value, minimum=1)
        self._sources = None

    # ---- what XGBoost calls

    def before_training(self, model: Any) -> Any:
        """Begins a training; XGBoost calls it."""
        if self._closed or self._forked:
            logger.warning(
                "this hook saves nothing: it was closed, or made in another process; make one in "
                "the process that trains"
            )
            return model
        # Outside of the guard: a configuration that makes no sense always raises.
        self._make_plan()
        self._make_ready()
        with self._entered(), contextlib.suppress(XGBoostError):
            # Parameters that make no sense are found out here first; XGBoost says so in a moment.
            self._begin_training(model)
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Begins a round; XGBoost calls it, and ends boosting when it returns True."""
        if not self._takes_part():
            return False
        if self._stop_if_asked():
            return True
        self._begin_step(self._rounds.begin_round(model, epoch, evals_log))
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Saves a round; XGBoost calls it."""
        if self._takes_part():
            self._end_round(self._rounds.end_round())
        return False

    def after_training(self, model: Any) -> Any:
        """Publishes what was saved; XGBoost calls it. More trainings may follow."""
        if self._takes_part():
            # Another callback that ended training may have done so before this one was asked.
            self._end_round(self._rounds.end())
            self.flush()
        return model

    # ---- a training

    def _takes_part(self) -> bool:
        # In this order: a hook that came from another process has no rounds.
        return not self._closed and not self._forked and self._rounds.under_way

    def _begin_training(self, model: Any) -> None:
        if not self._rounds.begin(model):
            logger.warning(
                "a training is not saved: the hook is at work in another thread; give each of "
                "several trainings at the same time a hook of its own"
            )
            return
        # Another model may have what the one before had not.
        self._sources = None
        self._said.clear()
        self._plan.forget()
        booster = booster_of(model)
        wanted = {CollectionKeys.AVERAGE_SHAP, CollectionKeys.FULL_SHAP, CollectionKeys.ALL}
        if wanted & self._included and booster is not None and BIAS in feature_names(booster):
            self._name_bias()

    def _end_round(self, finished: Round | None) -> None:
        if finished is None:
            return
        self._rounds.count(finished)
        capture = self._capture
        if capture is not None and capture.plan is not None:
            with self._entered():
                self._save_round(finished, capture)

    def _name_bias(self) -> None:
        """Makes room for a feature whose name the bias of the model usually has."""
        logger.warning(
            "a feature is called %s: average_shap/%s and full_shap/%s are that feature's; the bias "
            "of the model is the last column of full_shap", BIAS, BIAS, BIAS,
        )  # fmt: skip
        for name in (CollectionKeys.AVERAGE_SHAP, CollectionKeys.FULL_SHAP):
            self.get_collection(name).add(f"{name}/{BIAS}")

    def _save_round(self, finished: Round, capture: StepCapture) -> None:
        if self._sources is None:
            self._sources = self._all_sources()
            self._plan.forget()
        # What is watched comes first: whether the rest is saved may depend on it.
        watched = self._asked(_is_watched, finished, capture)
        for source in watched:
            self._offer_all(source, finished, capture)
        for source in self._asked(_is_saved, finished, capture):
            if source not in watched:
                self._offer_all(source, finished, capture)

    def _asked(
        self,
        interest: Callable[[StepPlan, Source, Round], bool],
        finished: Round,
        capture: StepCapture,
    ) -> tuple[Source, ...]:
        """The sources that are of this interest at such steps; found out once."""
        plan = capture.plan
        assert plan is not None
        # A metric may be measured for the first time at any round.
        key = interest, len(finished.known_metrics)
        known = plan.memory.get(key)
        if known is None:
            sources = self._sources or ()
            known = tuple(each for each in sources if interest(plan, each, finished))
            plan.memory[key] = known
        return cast("tuple[Source, ...]", known)

    def _offer_all(self, source: Source, finished: Round, capture: StepCapture) -> None:
        try:
            tensors = list(source.tensors(finished))
        except Exception as error:
            expected = isinstance(error, _EXPECTED)
            if self._options.on_error == "raise" and not expected:
                raise
            if not isinstance(error, NotAvailable) or error.for_good:
                # Not asked again in this training. The rest is saved.
                self._sources = tuple(each for each in self._sources or () if each is not source)
                self._plan.forget()
            why = reason(error) if expected else f"{type(error).__name__}: {error}"
            self._say(f"{source.what} cannot be saved: {why}", None if expected else error)
            if not expected:
                self._lost.append(f"{source.what} from step {capture.step.number} on")
            return
        assert capture.plan is not None
        rest = tensors if capture.plan.armed else self._numbers.take(tensors, capture)
        for name, value in rest:
            self._offer(name, np.array([value]) if isinstance(value, float) else value)

    def _say(self, message: str, error: Exception | None) -> None:
        if message not in self._said:
            self._said.add(message)
            logger.warning(message, exc_info=error)

    def _all_sources(self) -> tuple[Source, ...]:
        check = TreeCheck()
        return (
            Metrics(),
            Hyperparameters(self._hyperparameters),
            Labels(self._validation),
            Predictions(self._validation),
            *(FeatureImportance(kind, check) for kind in IMPORTANCE_TYPES),
            AverageShap(self._train, self._shap_samples),
            FullShap(self._train, self._shap_samples),
            Trees(check),
        )

    # ---- what BaseHook asks

    def _worker(self) -> Worker:
        count = collective.get_world_size()
        if count > 1:
            rank = collective.get_rank()
            name = self._options.worker or f"worker_{rank}"
            # Kept: the run is closed when the workers are no longer connected.
            self._known_worker = Worker(name, count, rank == 0)
        return self._known_worker or super()._worker()

    def _take(self, name: str, tensor: Any, want: SaveRequest) -> Capture | None:
        # What sources yield, and what a user saved, is a copy already.
        return ArrayCapture(name, tensor, want)

    def _stop_training(self, request: StopRequest) -> None:
        """Boosting ends by the answer to `before_iteration`."""

    def _detach(self) -> None:
        if self._lost:
            logger.warning(
                "the run in %s is not complete: it lacks %s",
                self.out_dir,
                ", ".join(dict.fromkeys(self._lost)),
            )
        self._rounds.stop()
        # The matrices are the user's; what was made of them goes.
        self._sources = None
        self._plan.forget()
        for data in (self._train, self._validation):
            if data is not None:
                data.forget_samples()


TornasoleHook = Hook


def _is_saved(plan: StepPlan, source: Source, finished: Round) -> bool:
    return any(plan.saves(name) for name in source.names(finished))


def _is_watched(plan: StepPlan, source: Source, finished: Round) -> bool:
    if not plan.armed:
        return False
    return any(plan.watcher(name) is not None for name in source.names(finished))
