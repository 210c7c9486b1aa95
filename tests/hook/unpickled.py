"""What every hook answers after it was pickled and unpickled."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug import modes
from smdebug.core.collection import Collection

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: dict[str, Callable[[Any], object]] = {
    "set_mode": lambda hook: hook.set_mode(modes.TRAIN),
    "step": lambda hook: hook.step + 1,
    "step set": lambda hook: setattr(hook, "step", 3),
    "mode": lambda hook: hook.mode.name,
    "mode_steps": lambda hook: dict(hook.mode_steps),
    "get_collection": lambda hook: hook.get_collection("mine").include("x"),
    "get_collections": lambda hook: dict(hook.get_collections()),
    "add_collection": lambda hook: hook.add_collection(Collection("other", include_regex="x")),
    "add_to_collection": lambda hook: hook.add_to_collection("mine", "x"),
    "save_scalar": lambda hook: hook.save_scalar("late", 1.0),
    "save_scalar as a metric": lambda hook: hook.save_scalar("late", 1.0, sm_metric=True),
    "save_tensor": lambda hook: hook.save_tensor("late", np.ones(2), ["mine", "losses"]),
    "should_save_tensor_or_collection": lambda hook: hook.should_save_tensor_or_collection(
        "late", "losses"
    ),
    "export_collections": lambda hook: hook.export_collections(),
    "has_default_configuration": lambda hook: hook.has_default_configuration(),
    "has_default_hook_configuration": lambda hook: hook.has_default_hook_configuration(),
    "findings": lambda hook: list(hook.findings()),
    "rule_report": lambda hook: hook.rule_report(),
    "stats": lambda hook: str(hook.stats()),
    "flush": lambda hook: hook.flush(),
    "close": lambda hook: hook.close(),
    "with": lambda hook: hook.__exit__(None, None, hook.__enter__() and None),
    "deepcopy": lambda hook: copy.deepcopy(hook).stats(),
    "pickle again": lambda hook: pickle.loads(pickle.dumps(hook)).set_mode(modes.EVAL),
    "repr": lambda hook: repr(hook),
}


def unpickled(hook: Any) -> Any:
    """Return a hook as another process gets it."""
    return pickle.loads(pickle.dumps(hook))


def public_names(hook: Any) -> list[str]:
    """Return the names of its methods and attributes."""
    return [name for name in dir(hook) if not name.startswith("_")]


def unreadable(hook: Any) -> list[str]:
    """Return the attributes of a hook that cannot be read after pickling."""
    other, missing = unpickled(hook), []
    for name in public_names(hook):
        try:
            getattr(other, name)
        except AttributeError:
            missing.append(name)
    return missing
