"""The hook for XGBoost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from xgboost.callback import TrainingCallback

from smdebug.config import validation
from smdebug.config.reduction_config import ReductionConfig
from smdebug.hook.arguments import inherit_arguments
from smdebug.hook.hook import BaseHook
from smdebug.xgboost.adapter import XGBoostAdapter
from smdebug.xgboost.inputs import DEFAULT_SHAP_SAMPLES, Inputs

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from smdebug.config.json_config import JsonConfigSource
    from smdebug.config.save_config import SaveConfig, SaveConfigMode

logger = logging.getLogger("smdebug.hook")

_RAW = ReductionConfig(save_raw_tensor=True)


@inherit_arguments
class Hook(BaseHook, TrainingCallback):
    """Saves tensors of XGBoost: a callback for `train`, `cv` and scikit-learn estimators.

    Every round of boosting is a step; training that continues from a model continues its steps.

    Args:
        reduction_config: has no effect, as in smdebug 1.0; that of a collection has.
        save_config: when to save: a SaveConfig, a SaveConfigMode, a dict, or None for every 10th
            round.
        include_collections: names of collections to save: `hyperparameters`, `losses`,
            `predictions`, `labels`, `feature_importance`, `average_shap`, `full_shap`, `trees`;
            `metrics` is always saved.
        hyperparameters: the hyperparameters to save, by name.
        train_data: the data that SHAP values are computed for: a DMatrix or QuantileDMatrix, or a
            tuple of a path and `"csv"` or `"libsvm"`.
        validation_data: the data whose labels and predictions are saved; as `train_data`.
        rules: rules to evaluate while training runs, such as `["TreeDepth:depth=8"]`. What they
            need is saved; without a `save_config`, metrics at every round and the rest at every
            10th.
        on_finding: `"warn"`: findings are logged and kept in the run; `"stop"`: boosting also ends
            before the next round, and training returns the model of the rounds so far.
        before_update: must be False: XGBoost shows no gradients before it uses them.
        shap_samples: the most rows of `train_data` that SHAP values are computed for, evenly
            spaced: they take long.
        resume: continue the run in `out_dir`, finished or not. Steps are the rounds of the model,
            as always: continue its training with `xgb_model`.

    Example:
        >>> hook = Hook("/tmp/run", include_collections=["trees"])  # doctest: +SKIP
        >>> evals = [(train, "train")]  # doctest: +SKIP
        >>> xgboost.train(params, train, evals=evals, callbacks=[hook])  # doctest: +SKIP
    """

    adapter_class = XGBoostAdapter
    _adapter: XGBoostAdapter

    # The positional arguments of smdebug 1.0; `actions` is here because `shap_samples` follows it.
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
        *,
        actions: Any = None,
        shap_samples: int = DEFAULT_SHAP_SAMPLES,
        **options: Any,
    ) -> None:
        # Without rules, too: the other error would ask for some.
        if validation.boolean("before_update", options.get("before_update", False)):
            XGBoostAdapter.refuse_before_update()
        ignored = isinstance(reduction_config, ReductionConfig) and reduction_config != _RAW
        # Checked before the run is opened.
        inputs = Inputs().replace(
            hyperparameters=hyperparameters,
            train_data=train_data,
            validation_data=validation_data,
            shap_samples=shap_samples,
        )
        super().__init__(
            out_dir, export_tensorboard, tensorboard_dir, dry_run,
            None if ignored else reduction_config, save_config,
            include_regex, include_collections, save_all, include_workers,
            actions=actions, **options,
        )  # fmt: skip
        self._adapter.set_inputs(inputs)
        if ignored:
            logger.warning(
                "reduction_config has no effect in a hook for XGBoost: tensors are saved as they "
                "are; set the reduction_config of a collection instead"
            )

    @classmethod
    def hook_from_config(cls, json_config_path: JsonConfigSource | None = None) -> Hook:
        """Make the hook that a JSON config describes; the same as `create_from_json_file`."""
        return cls.create_from_json_file(json_config_path)

    # ---- inputs, which may be set at any time

    @property
    def hyperparameters(self) -> Mapping[str, Any] | None:
        """The hyperparameters to save."""
        return self._adapter.inputs.hyperparameters

    @hyperparameters.setter
    def hyperparameters(self, value: Mapping[str, Any] | None) -> None:
        self._set_input("hyperparameters", value)

    @property
    def train_data(self) -> Any:
        """The data that SHAP values are computed for."""
        data = self._adapter.inputs.train_data
        return None if data is None else data.given

    @train_data.setter
    def train_data(self, value: Any) -> None:
        self._set_input("train_data", value)

    @property
    def validation_data(self) -> Any:
        """The data whose labels and predictions are saved."""
        data = self._adapter.inputs.validation_data
        return None if data is None else data.given

    @validation_data.setter
    def validation_data(self, value: Any) -> None:
        self._set_input("validation_data", value)

    @property
    def shap_samples(self) -> int:
        """The most rows that SHAP values are computed for."""
        return self._adapter.inputs.shap_samples

    @shap_samples.setter
    def shap_samples(self, value: int) -> None:
        self._set_input("shap_samples", value)

    def _set_input(self, key: str, value: Any) -> None:
        self._adapter.set_inputs(self._adapter.inputs.replace(**{key: value}))

    # ---- callbacks

    def before_training(self, model: Any) -> Any:
        """Begin a training run; XGBoost calls it."""
        self._adapter.begin_training(model)
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Begin a round; XGBoost calls it, and ends training if it returns True."""
        return self._adapter.begin_round(model, epoch, evals_log)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Save a round; XGBoost calls it."""
        self._adapter.end_round()
        return False

    def after_training(self, model: Any) -> Any:
        """Publish what was saved; XGBoost calls it. More training runs may follow."""
        self._adapter.end_training()
        return model


TornasoleHook = Hook
