"""The hook for Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from smdebug.config import validation
from smdebug.exceptions import SMDebugTypeError
from smdebug.hook.arguments import inherit_arguments
from smdebug.hook.steps import check_mode
from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import keras, tf
from smdebug.tensorflow.hook import TensorflowHook
from smdebug.tensorflow.keras.adapter import KerasAdapter
from smdebug.tensorflow.keras.optimizers import is_optimizer
from smdebug.tensorflow.keras.recording import no_autograph

if TYPE_CHECKING:
    from smdebug.hook.pipeline import Pipeline


@inherit_arguments
class KerasHook(TensorflowHook, keras.callbacks.Callback):
    """Saves tensors of a Keras model: a callback for `fit`, `evaluate` and `predict`.

    Every batch is a step; its mode is TRAIN, EVAL or PREDICT. At the steps that `save_config` names
    the hook saves what its collections hold: `weights`, `biases` and `optimizer_variables` (after
    the update), `gradients`, `layers`, `inputs`, `labels`, `predictions`. `losses`, `metrics` and
    `sm_metrics` are always saved. A custom loop wraps its tape with `wrap_tape`.

    Example:
        >>> hook = KerasHook("/tmp/run", include_collections=["gradients"])  # doctest: +SKIP
        >>> model.fit(images, labels, callbacks=[hook])  # doctest: +SKIP
    """

    adapter_class = KerasAdapter

    def _set_pipeline(self, pipeline: Pipeline) -> None:
        super()._set_pipeline(pipeline)
        self._adapter = cast("KerasAdapter", pipeline.adapter)
        # Only now: Keras 2 sets `model`, which the adapter stores.
        keras.callbacks.Callback.__init__(self)

    @property
    def model(self) -> Any:
        """The model that Keras trains; None before the first `fit` and after `close`."""
        model = self._adapter.model
        if hasattr(model, "jax_state_sync"):
            # As every callback does: during `fit` on JAX the values are not in the variables.
            model.jax_state_sync()
        return model

    @model.setter
    def model(self, model: Any) -> None:
        self._adapter.model = model

    # ---- custom loops

    def register_model(self, model: Any) -> None:
        """Register the model of a custom loop; `fit` does it itself.

        Args:
            model: a Keras model: inputs and outputs of its layers are saved, too.

        Raises:
            SMDebugTypeError: it is not a model.

        Example:
            >>> hook.register_model(model)  # doctest: +SKIP
        """
        if not isinstance(model, keras.Model):
            raise SMDebugTypeError(
                f"model must be a Keras model, got {type(model).__name__}; pass the model that is "
                "trained"
            )
        self._adapter.register_model(model)

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Save the gradients passed to an optimizer, and its variables.

        The optimizer that a model was compiled with needs no wrapping in `fit`.

        Args:
            optimizer: a Keras optimizer; anything else is ignored with a warning.

        Returns:
            The same optimizer.

        Example:
            >>> optimizer = hook.wrap_optimizer(keras.optimizers.Adam())  # doctest: +SKIP
        """
        if is_optimizer(optimizer):
            self._adapter.variables.add_optimizer(optimizer)
        else:
            self._adapter.warn_once(
                f"wrap_optimizer: ignoring {type(optimizer).__name__}, which is not a Keras "
                "optimizer"
            )
        return optimizer

    @no_autograph
    def wrap_tape(self, tape: Any) -> Any:
        """Save losses, gradients and variables of a tape; entering it begins a TRAIN step.

        Args:
            tape: a `tf.GradientTape`, inside or outside a `tf.function`; anything else is ignored
                with a warning.

        Returns:
            The same tape.

        Example:
            >>> with hook.wrap_tape(tf.GradientTape()) as tape:  # doctest: +SKIP
            ...     loss = loss_function(labels, model(images))
            >>> gradients = tape.gradient(loss, model.trainable_variables)  # doctest: +SKIP
        """
        if tf is None or not isinstance(tape, tf.GradientTape):
            self._adapter.warn_once(
                f"wrap_tape: ignoring {type(tape).__name__}, which is not a tf.GradientTape"
            )
        else:
            self._adapter.wrap_tape(tape)
        return tape

    def set_mode(self, mode: ModeKeys) -> None:
        """Set the mode of the steps to come; `fit`, `evaluate` and `predict` do it themselves.

        An evaluation in a custom loop has no tape that begins a step: what the user saves after
        `set_mode(modes.EVAL)`, or PREDICT, is one step of that mode.
        """
        self._adapter.set_mode(check_mode(mode), by_user=True)

    @no_autograph
    def save_tape_logs(self, model_inputs: Any = None, outputs: Any = None) -> None:
        """Save the inputs and predictions of a model in a custom loop.

        Args:
            model_inputs: the model's inputs, saved as `inputs`.
            outputs: the model's outputs, saved as `predictions`.
        """
        self._adapter.tapes.save_data("inputs", model_inputs)
        self._adapter.tapes.save_data("predictions", outputs)

    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """Save a metric, or a loss, at the current step if its collection is saved at it.

        Args:
            tensor_name: its name; one that ends with `loss` is a loss.
            tensor_value: a tensor with a value.
        """
        validation.text("tensor_name", tensor_name)
        value = self._adapter.to_array(tensor_name, tensor_value)
        self._adapter.begin_user_step()
        with self._pipeline.guarded:
            self._adapter.metrics.offer(tensor_name, value)
        self._pipeline.errors.raise_pending()

    @no_autograph
    def set_gradients(self, gradients: Any = None, gradients_and_variables: Any = None) -> None:
        """Save gradients at the current step, where neither a tape nor an optimizer is wrapped.

        Args:
            gradients: gradients of the trainable variables of the registered model, in order.
            gradients_and_variables: pairs of a gradient and its variable.

        Raises:
            SMDebugTypeError: gradients without variables, and no model is registered.
        """
        pairs = list(gradients_and_variables or ())
        if gradients is not None:
            model = self._adapter.registered or self._adapter.model
            if model is None:
                raise SMDebugTypeError(
                    "gradients must come with their variables where no model is registered; pass "
                    "gradients_and_variables, or call register_model first"
                )
            pairs += list(zip(gradients, model.trainable_variables, strict=True))
        self._adapter.tapes.save_gradients(pairs)

    def set_optimizer_variables(self, optimizer_variables: Any) -> None:
        """Set the variables of the optimizer of a custom loop.

        Args:
            optimizer_variables: variables, or lists of variables.
        """
        self._adapter.variables.set_optimizer_variables(optimizer_variables)

    def should_save_layer(self, layer_name: str) -> bool:
        """Return whether inputs or outputs of a layer are saved at the current step."""
        return any(
            self.should_save_tensor_or_collection(f"{layer_name}/{kind}", "")
            for kind in ("inputs", "outputs")
        )

    # ---- called by Keras

    def set_model(self, model: Any) -> None:
        """Set the model of the `fit`, `evaluate` or `predict` that begins."""
        self._adapter.set_model(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin a `fit`."""
        self._adapter.begin(ModeKeys.TRAIN)

    def on_test_begin(self, logs: Any = None) -> None:
        """Begin an `evaluate`."""
        self._adapter.begin(ModeKeys.EVAL)

    def on_predict_begin(self, logs: Any = None) -> None:
        """Begin a `predict`."""
        self._adapter.begin(ModeKeys.PREDICT)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin an epoch."""
        self._adapter.begin_epoch()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a TRAIN step."""
        self._adapter.begin_batch(ModeKeys.TRAIN)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin an EVAL step."""
        self._adapter.begin_batch(ModeKeys.EVAL)

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a PREDICT step."""
        self._adapter.begin_batch(ModeKeys.PREDICT)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save a TRAIN step."""
        self._adapter.end_batch(ModeKeys.TRAIN, batch, logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save an EVAL step."""
        self._adapter.end_batch(ModeKeys.EVAL, batch, logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save a PREDICT step."""
        self._adapter.end_batch(ModeKeys.PREDICT, batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save the results of an epoch at its last step, whatever the save schedule."""
        self._adapter.end_epoch(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        """End a `fit` and publish what was saved; more may follow."""
        self._adapter.end(ModeKeys.TRAIN)

    def on_test_end(self, logs: Any = None) -> None:
        """End an `evaluate`."""
        self._adapter.end(ModeKeys.EVAL)

    def on_predict_end(self, logs: Any = None) -> None:
        """End a `predict`."""
        self._adapter.end(ModeKeys.PREDICT)
