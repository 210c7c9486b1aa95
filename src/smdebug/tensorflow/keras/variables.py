"""The variables that are saved: those of a model and of its optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.config.collection import CollectionKeys
from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import flatten
from smdebug.tensorflow.keras.layers import distinct, variable_name
from smdebug.tensorflow.keras.optimizers import (
    distinct_objects,
    optimizer_variables,
    optimizers_of,
)
from smdebug.tensorflow.naming import FROZEN_PARAMETERS
from smdebug.tensorflow.tensors import value_of

if TYPE_CHECKING:
    from smdebug.hook.capture import StepCapture
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import SavePlan, StepCache, StepPlan
    from smdebug.tensorflow.keras.layers import NamedModel

NamedVariables = list[tuple[str, Any]]


class Variables:
    """Finds, names and saves variables.

    Args:
        pipeline: the pipeline.
        named: names the variables of the model.

    Attributes:
        optimizers: the optimizers that the user wrapped.
    """

    def __init__(self, pipeline: Pipeline, named: NamedModel) -> None:
        self._pipeline = pipeline
        self._named = named
        self._saved: StepCache[NamedVariables] = pipeline.new_cache()
        self.optimizers: tuple[Any, ...] = ()
        self._given: tuple[Any, ...] = ()
        self._frozen: tuple[str, ...] = ()
        # The optimizer variables that are in their collection, and the plan it belongs to.
        self._collected: set[str] = set()
        self._plan: SavePlan | None = None

    def add_optimizer(self, optimizer: Any) -> None:
        """Save the variables of an optimizer that the model does not hold."""
        self.optimizers += (optimizer,)
        self.model_may_have_changed()

    def set_optimizer_variables(self, variables: Any) -> None:
        """Save these variables, or lists of variables, as those of an optimizer."""
        self._given = tuple(flatten(variables))
        self.model_may_have_changed()

    def model_may_have_changed(self) -> None:
        """Look for variables again at the next step that saves any."""
        self._saved.clear()

    def offer(self, capture: StepCapture, model: Any) -> None:
        """Offer all variables of a model, and of its optimizers, at the current step."""
        plan = capture.plan
        assert plan is not None
        saved = self._saved.get(plan, "variables", lambda: self._relevant(plan, model))
        if saved and hasattr(model, "jax_state_sync"):
            # During `fit` on JAX the values are not in the variables.
            model.jax_state_sync()
        for name, variable in saved:
            self._pipeline.offer(name, value_of(variable))

    def _relevant(self, plan: StepPlan, model: Any) -> NamedVariables:
        found = [(each.name, each.variable) for each in self._named.names().weights]
        if plan.mode is ModeKeys.TRAIN:
            self._collect_frozen(model)
            found += self.of_optimizers(model)
        return [(name, variable) for name, variable in found if plan.is_relevant(name)]

    def of_optimizers(self, model: Any) -> NamedVariables:
        """Return the variables of all optimizers with their names, and add new ones to collections.

        Args:
            model: the model that Keras trains, or None.
        """
        held = [] if model is None else optimizers_of(model)
        found = list(self._given)
        for optimizer in (*held, *self.optimizers):
            found += optimizer_variables(optimizer)
        found = distinct_objects(found)
        names = distinct({id(variable): variable_name(variable) for variable in found})
        named = [(f"{names[id(variable)]}:0", variable) for variable in found]
        collections = self._pipeline.collections
        if self._plan is not collections.plan:
            # Collections may have been replaced.
            self._plan, self._collected = collections.plan, set()
        for name, _ in named:
            # Once: excluding a name matches regexes.
            if name not in self._collected:
                self._collected.add(name)
                collections.add_tensor(CollectionKeys.OPTIMIZER_VARIABLES, name)
                # A variable of a layer called `weights` may look like a weight.
                collections.exclude_tensor(CollectionKeys.WEIGHTS, name)
                collections.exclude_tensor(CollectionKeys.BIASES, name)
        return named

    def _collect_frozen(self, model: Any) -> None:
        """Add the weights that are not trained to a collection, for rules."""
        trained = {id(each) for each in model.trainable_weights}
        weights = self._named.names().weights
        names = tuple(each.name for each in weights if id(each.variable) not in trained)
        if names != self._frozen:
            self._frozen = names
            for name in names:
                self._pipeline.collections.remember(name, (FROZEN_PARAMETERS,))
                self._pipeline.collections.add_tensor(FROZEN_PARAMETERS, name)
