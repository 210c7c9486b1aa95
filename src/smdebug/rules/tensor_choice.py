"""Which tensors a rule looks at: those of collections, those that regexes find, or all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.config.rule_requirements import TensorRequirement

if TYPE_CHECKING:
    from smdebug.config.collection import Collection
    from smdebug.trials.trial import Trial


class TensorChoice:
    """A choice of tensors, made once per name.

    Args:
        collections: names of collections: a list or a string with commas.
        regexes: regexes of tensor names: a list or a string with commas.
        everything: choose all tensors when neither is given.
        key: what the user calls the regexes, for the error message.

    Attributes:
        matched: whether any tensor of the trial was chosen.
        seen: whether a number or a value of one was there.

    Example:
        >>> choice = TensorChoice(regexes="relu_output,tanh_output")
        >>> choice.described
        'tensors that match relu_output or tanh_output'
    """

    def __init__(
        self,
        collections: Any = None,
        regexes: Any = None,
        everything: bool = False,
        key: str = "tensor_regex",
    ) -> None:
        self.collections = validation.comma_list("collection_names", collections)
        if isinstance(regexes, str):
            # A comma within braces belongs to a regex.
            regexes = re.split(r",(?![^{}]*\})", regexes)
        self.regexes = validation.comma_list(key, regexes)
        self._patterns = [validation.regex(key, regex) for regex in self.regexes]
        self._everything = everything and not self.collections and not self.regexes
        self._known: dict[str, bool] = {}
        self._found: dict[str, Collection] = {}
        self.matched = self.seen = False

    def __bool__(self) -> bool:
        return bool(self.collections or self.regexes or self._everything)

    @property
    def described(self) -> str:
        """The choice in words."""
        if self._everything:
            return "all tensors"
        parts = []
        if self.collections:
            parts.append(f"tensors of the collection {' or '.join(self.collections)}")
        if self.regexes:
            parts.append(f"tensors that match {' or '.join(self.regexes)}")
        return ", or ".join(parts)

    def needs(
        self, made: str, reductions: tuple[str, ...] = (), raw: bool = False
    ) -> tuple[TensorRequirement, ...]:
        """What a hook has to save of the chosen tensors.

        Args:
            made: the name of a collection that is made for the regexes.
            reductions: the reductions of them.
            raw: the tensors themselves.
        """
        found = [TensorRequirement(name, reductions, raw) for name in self.collections]
        if self.regexes:
            found.append(
                TensorRequirement(made, reductions, raw, include_regex=tuple(self.regexes))
            )
        return tuple(found)

    def look_at(self, trial: Trial) -> None:
        """Takes the collections as the trial has them now; done before names are asked about."""
        known = trial.collections()
        found = {name: known[name] for name in self.collections if name in known}
        if "all" in self.collections:
            self._everything = True
        # Objects of the trial, which add names as they come.
        self._found = found
        self._known = {name: True for name, chosen in self._known.items() if chosen}

    def __call__(self, tensor: str) -> bool:
        """Whether a tensor of this name is chosen."""
        if tensor not in self._known:
            self._known[tensor] = (
                self._everything
                or any(pattern.search(tensor) for pattern in self._patterns)
                or any(collection.matches(tensor) for collection in self._found.values())
            )
        self.matched = self.matched or self._known[tensor]
        return self._known[tensor]
