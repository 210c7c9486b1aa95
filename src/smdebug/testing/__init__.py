"""What tests of our own and of other people's stores, adapters and scripts can use.

`StoreContract`, `AdapterContract` and `ReductionContract` are classes of tests to subclass (they
need pytest); `make_run` writes a small run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdebug.testing.adapter_contract import AdapterContract, Trained
    from smdebug.testing.reduction_contract import ReductionContract
    from smdebug.testing.runs import make_run
    from smdebug.testing.store_contract import StoreContract

__all__ = ["AdapterContract", "ReductionContract", "StoreContract", "Trained", "make_run"]

_MODULES = {
    "AdapterContract": "adapter_contract",
    "ReductionContract": "reduction_contract",
    "StoreContract": "store_contract",
    "Trained": "adapter_contract",
    "make_run": "runs",
}


def __getattr__(name: str) -> Any:
    # Late, so that writing a run does not need pytest.
    if name in _MODULES:
        return getattr(importlib.import_module(f"smdebug.testing.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'smdebug.testing' has no attribute {name!r}")
