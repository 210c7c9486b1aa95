"""What has to be saved so that a rule can run."""

from __future__ import annotations

from dataclasses import dataclass

from smdebug.config.collection import SM_METRIC_COLLECTIONS, CollectionKeys

# How often a hook that is told no schedule saves tensors for its rules.
DEFAULT_RULE_INTERVAL = 10
_REPORTED = SM_METRIC_COLLECTIONS | {CollectionKeys.SCALARS}


@dataclass(frozen=True)
class TensorRequirement:
    """Tensors that a rule reads, and what it reads of them.

    Attributes:
        collection: the collection they are in: one of the framework's own, or one made for them.
        reductions: the reductions it reads.
        raw: whether it reads the tensors themselves.
        include_regex: names of the tensors, for a collection that the framework does not have.
        layers: kinds of layers whose inputs or outputs they are: class names in lower case, `model`
            for what the model takes and returns, `loss` for the losses.
        tensor: `"input"` or `"output"`, of those layers.
        index: which of several inputs or outputs; all of them when None.
        saves: only the first so many saved steps are of use; None for all.

    Example:
        >>> Need("gradients", reductions=("abs_mean",)).described
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
        """How often to save when the hook is told no schedule: what training reports, always.

        Not every collection of numbers: those about features have to be computed.
        """
        return 1 if self.collection in _REPORTED else DEFAULT_RULE_INTERVAL

    @property
    def described(self) -> str:
        """What it is, in words."""
        parts = [*self.reductions, *(["the tensors themselves"] if self.raw else [])]
        return f"{', '.join(parts) or 'anything'} of the collection {self.collection}"
