"""What tests of our own and of other people's stores and scripts can use.

`StoreContract` and `AdapterContract` are classes of tests to subclass (they need pytest);
`make_run` writes a small run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdebug.testing.adapter_contract import AdapterContract
    from smdebug.testing.runs import make_run
    from smdebug.testing.store_contract import StoreContract

__all__ = ["AdapterContract", "StoreContract", "make_run"]


def __getattr__(name: str) -> Any:
    # Late, so that writing a run does not need pytest.
    if name == "AdapterContract":
        from smdebug.testing.adapter_contract import AdapterContract

        return AdapterContract
    if name == "StoreContract":
        from smdebug.testing.store_contract import StoreContract

        return StoreContract
    if name == "make_run":
        from smdebug.testing.runs import make_run

        return make_run
    raise AttributeError(f"module 'smdebug.testing' has no attribute {name!r}")
