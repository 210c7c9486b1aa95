"""The tensors that a rule needs."""

from __future__ import annotations

from dataclasses import dataclass

from smdebug.config.collection import SM_METRIC_COLLECTIONS, CollectionKeys

# The save interval of tensors for rules, if the hook has no save_config.
DEFAULT_RULE_INTERVAL = 10
_REPORTED = SM_METRIC_COLLECTIONS | {CollectionKeys.SCALARS}


@dataclass(frozen=True)
class TensorRequirement:
    """Tensors that a rule reads, and which of their values it reads.

    Attributes:
        collection: their collection: a built-in one of the framework, or one created for them.
        reductions: the reductions that are read.
        raw: whether the tensors themselves are read.
        include_regex: regexes of the tensors, for a collection that the framework does not have.
        layers: kinds of layers whose inputs or outputs they are: class names in lower case, `model`
            for the inputs and outputs of the model, `loss` for the losses.
        tensor: `"input"` or `"output"` of those layers.
        index: which of several inputs or outputs; all of them when None.
        saves: how many saved steps are needed, from the first one; all of them when None.

    Example:
        >>> TensorRequirement("gradients", reductions=("abs_mean",)).described
        'abs_mean of the collection gradients'
    """

    collection: str
    reductions: tuple[str, ...] = ()
    raw: bool = False
    include_regex: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    tensor: str = "output"
    index: int | None = None
    saves: int | None = None

    @property
    def interval(self) -> int:
        """The save interval if the hook has no save_config: 1 for losses, metrics and scalars.

        Other collections of scalars, such as feature importances, have to be computed.
        """
        return 1 if self.collection in _REPORTED else DEFAULT_RULE_INTERVAL

    @property
    def described(self) -> str:
        """A phrase that describes it in messages."""
        parts = [*self.reductions, *(["the tensors themselves"] if self.raw else [])]
        return f"{', '.join(parts) or 'anything'} of the collection {self.collection}"
