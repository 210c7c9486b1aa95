"""Tanh and sigmoid units that are driven so far that no gradient is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import SMDebugValueError
from smdebug.rules.detectors.unit_activity import InactiveUnitRule

if TYPE_CHECKING:
    from smdebug.reductions import Array
    from smdebug.rules.tensor_choice import TensorChoice
    from smdebug.trials.index_rows import Bools
    from smdebug.trials.trial import Trial

_TANH, _SIGMOID = "tanh_input", "sigmoid_input"


class SaturatedActivation(InactiveUnitRule):
    """Fires when more than `threshold_layer` percent of a layer's tanh or sigmoid units saturate.

    A unit is active where its input lies within the thresholds; beyond them the function is flat in
    float32, give or take its last bit. It is saturated when that is so at less than
    `threshold_inactivity` percent of the positions; see `InactiveUnitRule` for what units and
    positions are, and how many of them are used. NaN counts as active: it is not for this rule.

    A tensor is an input of a tanh when its name has "tanh" in it, in any case, or when the
    collection `tanh_input` has it; of a sigmoid likewise. Any other chosen tensor is held to the
    wider range of the two.

    Args:
        base_trial: the trial to look at.
        collection_names: collections of inputs: a list or a string with commas.
        tensor_regex: regexes of inputs: a list or a string with commas. When neither is given, the
            collections `tanh_input` and `sigmoid_input` and names that match `.*tanh_input` and
            `.*sigmoid_input` are looked at.
        threshold_tanh_min: the lowest input of a tanh that does not saturate it.
        threshold_tanh_max: the highest one.
        threshold_sigmoid_min: the lowest input of a sigmoid that does not saturate it.
        threshold_sigmoid_max: the highest one.
        threshold_inactivity: a unit within the thresholds less often, in percent, is saturated.
        threshold_layer: the largest percentage of saturated units that a layer may have.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["SaturatedActivation:threshold_tanh_max=5"])  # doctest: +SKIP
    """

    def __init__(
        self,
        base_trial: Trial | None,
        collection_names: Any = None,
        tensor_regex: Any = None,
        threshold_tanh_min: Any = -9.4999,
        threshold_tanh_max: Any = 9.4999,
        threshold_sigmoid_min: Any = -23.0,
        threshold_sigmoid_max: Any = 16.99999,
        threshold_inactivity: Any = 1.0,
        threshold_layer: Any = 50.0,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, threshold_inactivity, threshold_layer, action_str)
        self.threshold_tanh_min, self.threshold_tanh_max = _range(
            "threshold_tanh", threshold_tanh_min, threshold_tanh_max
        )
        self.threshold_sigmoid_min, self.threshold_sigmoid_max = _range(
            "threshold_sigmoid", threshold_sigmoid_min, threshold_sigmoid_max
        )
        names = validation.comma_list("collection_names", collection_names)
        regexes = validation.comma_list("tensor_regex", tensor_regex)
        self._is_default = not names and not regexes
        if self._is_default:
            names, regexes = [_TANH, _SIGMOID], [f".*{_TANH}", f".*{_SIGMOID}"]
        self.inputs = self.choose(names, regexes)
        self._tanh = self.choose([_TANH], required=False)
        self._sigmoid = self.choose([_SIGMOID], required=False)

    @property
    def units(self) -> TensorChoice:
        """The inputs of tanhs and sigmoids."""
        return self.inputs

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The inputs of tanhs and sigmoids, themselves."""
        if not self._is_default:
            return self.inputs.needs("activation_input", raw=True)
        return tuple(
            TensorRequirement(
                name, raw=True, include_regex=(f".*{name}",), layers=(layer,), tensor="input"
            )
            for name, layer in ((_TANH, "tanh"), (_SIGMOID, "sigmoid"))
        )

    def active(self, tensor: str, array: Array) -> Bools:
        """Where the inputs lie within the thresholds, or are NaN."""
        low, high = self._thresholds(tensor)
        found: Bools = ~((array < low) | (array > high))
        return found

    def sentence(self, tensor: str, percent: float) -> str:
        """What to say of a layer with saturated units."""
        low, high = self._thresholds(tensor)
        return (
            f"{percent:.0f} % of the units of {tensor} are saturated, more than "
            f"{self.threshold_layer:g} %: less than {self.threshold_inactivity:g} % of their "
            f"inputs lie between {low:g} and {high:g}"
        )

    def _thresholds(self, tensor: str) -> tuple[float, float]:
        tanh = (self.threshold_tanh_min, self.threshold_tanh_max)
        sigmoid = (self.threshold_sigmoid_min, self.threshold_sigmoid_max)
        if "tanh" in tensor.lower() or self._tanh(tensor):
            return tanh
        if "sigmoid" in tensor.lower() or self._sigmoid(tensor):
            return sigmoid
        return min(tanh[0], sigmoid[0]), max(tanh[1], sigmoid[1])


def _range(name: str, low: Any, high: Any) -> tuple[float, float]:
    found = validation.number(f"{name}_min", low), validation.number(f"{name}_max", high)
    if found[0] >= found[1]:
        raise SMDebugValueError(
            f"{name}_min must be below {name}_max, got {found[0]:g} and {found[1]:g}"
        )
    return found
