"""A batch that can be passed to the function of a Keras model more than once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from smdebug.tensorflow.backend import tf
from smdebug.tensorflow.keras.recording import no_autograph

if TYPE_CHECKING:
    from collections.abc import Callable


class RepeatableBatch:
    """A batch that was taken from the argument of a model's function.

    Args:
        argument: the argument: an iterator or, to predict, a list of batches.
        value: the batch.
        spec: the spec that the function was traced for; None for a list of batches.
        strategy: the strategy that distributed the batch, if one did.
    """

    def __init__(self, argument: Any, value: Any, spec: Any, strategy: Any = None) -> None:
        self._argument = argument
        self._value = value
        self._spec = spec
        self._strategy = strategy

    @classmethod
    def take(cls, argument: Any, strategy: Any, known: list[Any]) -> RepeatableBatch | None:
        """Take the next batch; None, and nothing is taken, where it could not be repeated.

        Args:
            argument: the argument of the function.
            strategy: the strategy of the model.
            known: specs of batches that can be repeated; new ones are added.
        """
        if isinstance(argument, list | tuple):
            return cls(argument, None, None)
        distributed = isinstance(argument, tf.distribute.DistributedIterator)
        if distributed and strategy.num_replicas_in_sync > 1:
            return None
        if not distributed and not isinstance(argument, tf.data.Iterator):
            return None
        spec = argument.element_spec
        if spec not in known:
            if not _is_repeatable(spec):
                return None
            known.append(spec)
        return cls(argument, next(argument), spec, strategy if distributed else None)

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """Call the function with an argument that holds this batch again."""
        if self._spec is None:
            return function(self._argument)
        dataset = _dataset_of(self._value, self._spec)
        if self._strategy is None:
            return function(iter(dataset))
        iterator = iter(self._strategy.experimental_distribute_dataset(dataset))
        try:
            return function(iterator)
        finally:
            # TensorFlow (2.21 was measured) frees the dataset of a distributed iterator before it
            # stops the thread that reads it: dropping one that is not at its end may crash.
            with suppress(tf.errors.OpError):
                for _ in iterator:
                    pass


def _is_repeatable(spec: Any) -> bool:
    """Return whether a dataset with one batch can have this spec."""
    if any(not isinstance(each, tf.TensorSpec) for each in tf.nest.flatten(spec)):
        return False
    try:
        empty = tf.nest.map_structure(
            lambda each: tf.zeros([size or 0 for size in each.shape.as_list() or ()], each.dtype),
            spec,
        )
        return bool(_dataset_of(empty, spec).element_spec == spec)
    except (TypeError, ValueError):
        # A custom structure, or tensors of unknown rank.
        return False


def _dataset_of(value: Any, spec: Any) -> Any:
    """Make a dataset of one batch whose static shapes are those of the spec."""

    @no_autograph
    def with_spec(*parts: Any) -> Any:
        # `map` unpacks only a plain tuple.
        structure = parts if type(value) is tuple else parts[0]
        return tf.nest.map_structure(
            # The function was traced for any number of rows, not for the number in this batch.
            lambda each, known: tf.compat.v1.placeholder_with_default(each, known.shape),
            structure,
            spec,
        )

    return tf.data.Dataset.from_tensors(value).map(with_spec)
