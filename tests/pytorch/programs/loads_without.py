"""Loads a model where smdebug cannot be imported, and trains it.

python loads_without.py <pickle | torch> <file>
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


class Blocker:
    """Refuses to find the library."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] in ("smdebug", "tornasole"):
            raise ImportError(f"{name} is not installed here")
        return None


def main(kind: str, file: str) -> None:
    sys.meta_path.insert(0, Blocker())
    path = Path(file)
    if kind == "pickle":
        model: Any = pickle.loads(path.read_bytes())
    else:
        model = torch.load(path, weights_only=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(torch.randn(5, 4)), torch.randint(0, 3, (5,)))
        loss.backward()
        optimizer.step()
    assert not [name for name in sys.modules if name.partition(".")[0] == "smdebug"]
    torch.save(model.state_dict(), path.with_suffix(".state"))
    sys.stdout.write("trained\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
