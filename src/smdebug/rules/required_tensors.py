"""The tensors a rule says it needs at a step, fetched together before it is invoked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from smdebug.exceptions import SMDebugValueError, TensorUnavailable
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smdebug.trials.tensor import Tensor
    from smdebug.trials.trial import Trial


class RequiredTensorsForTrial:
    """The tensors and steps that a rule needs of one trial."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._steps: dict[str, list[int]] = {}

    def add(self, name: str, steps: Iterable[int], should_match_regex: bool = False) -> None:
        """Adds a tensor, or all that a regex finds.

        Raises:
            TensorUnavailable: the trial has no such tensor.
        """
        names, steps = [name], list(steps)
        if should_match_regex:
            names = [each for each in self.trial.tensor_names() if re.search(name, each)]
        if not names:
            raise TensorUnavailable(name)
        for each in names:
            # Raises for an unknown one, and offers the nearest names.
            self.trial.tensor(each)
            known = self._steps.setdefault(each, [])
            known += [step for step in steps if step not in known]

    def get(self) -> list[Tensor]:
        """The tensors."""
        return [self.trial.tensor(name) for name in self._steps]

    def get_names(self) -> list[str]:
        """Their names."""
        return list(self._steps)

    def get_tensor_steps(self, name: str) -> list[int] | None:
        """The steps needed of a tensor; None when it is not needed."""
        return self._steps.get(name)

    def clear(self) -> None:
        """Forgets everything."""
        self._steps.clear()

    def fetch(self) -> None:
        """Waits for all steps and reads every value.

        Raises:
            StepUnavailable, NoMoreData: a step is not there and will not come.
            TensorUnavailableForStep: a tensor was not saved at a step.
        """
        steps = sorted({step for wanted in self._steps.values() for step in wanted})
        self.trial.wait_for_steps(steps)
        for name, wanted in self._steps.items():
            tensor = self.trial.tensor(name)
            for step in wanted:
                if not tensor.reduction_values(step, ModeKeys.GLOBAL):
                    tensor.value(step)


class RequiredTensors:
    """The tensors that a rule needs, of its own trial and of others.

    Args:
        base_trial: the rule's own trial.
        other_trials: further ones.

    Example:
        >>> rule.req_tensors.add("fc.weight", steps=[step])  # doctest: +SKIP
    """

    def __init__(self, base_trial: Trial, other_trials: Sequence[Trial] | None = None) -> None:
        self._base = base_trial
        trials = [base_trial, *(other_trials or [])]
        self._of = [RequiredTensorsForTrial(trial) for trial in trials if trial is not None]

    def add(
        self,
        name: str,
        steps: Iterable[int],
        trial: Trial | None = None,
        should_match_regex: bool = False,
    ) -> None:
        """Adds a tensor, or all that a regex finds.

        Args:
            name: its name, or a regex.
            steps: the global steps at which it is needed.
            trial: of which trial; the rule's own when None.
            should_match_regex: `name` is a regex.

        Raises:
            TensorUnavailable: the trial has no such tensor.
        """
        self._for(trial).add(name, list(steps), should_match_regex)

    def get(self, trial: Trial | None = None) -> list[Tensor]:
        """The tensors needed of a trial."""
        return self._for(trial).get()

    def get_names(self, trial: Trial | None = None) -> list[str]:
        """The names of the tensors needed of a trial."""
        return self._for(trial).get_names()

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int] | None:
        """The steps at which a tensor is needed."""
        return self._for(trial).get_tensor_steps(name)

    def clear(self) -> None:
        """Forgets everything; done before every step."""
        for each in self._of:
            each.clear()

    def fetch(self) -> None:
        """Waits for all steps and reads what is needed at them."""
        for each in self._of:
            each.fetch()

    def _for(self, trial: Trial | None) -> RequiredTensorsForTrial:
        chosen = self._base if trial is None else trial
        # One run may be opened twice: then the trials are equal, but not the same object.
        same = [each for each in self._of if each.trial is chosen]
        for each in same or [each for each in self._of if each.trial == chosen]:
            return each
        raise SMDebugValueError(
            f"trial must be the rule's own or one of its other_trials, got {trial!r}"
        )
