"""What is to be done when a package is imported, be it before or after it was asked for."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Told = Callable[[ModuleType], None]


class ImportWatch(importlib.abc.MetaPathFinder):
    """Tells of the imports of some packages; it imports none itself.

    Args:
        wanted: what to call, with the imported module, by its name.

    Example:
        >>> watch = ImportWatch({"wave": lambda module: None})
        >>> watch.start()
        >>> watch.stop()
    """

    def __init__(self, wanted: dict[str, Told]) -> None:
        self._wanted = dict(wanted)
        # Those that the other finders are being asked for.
        self._asked: set[str] = set()

    def start(self) -> None:
        """Tells of what is imported already, and of what will be."""
        for name, told in self._wanted.items():
            if name in sys.modules:
                told(sys.modules[name])
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Tells of nothing more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds what the other finders find; for a wanted package, with a loader that tells."""
        if fullname not in self._wanted or fullname in self._asked:
            return None
        self._asked.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asked.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _TellingLoader(spec.loader, self._wanted[fullname])
        return spec


class _TellingLoader(importlib.abc.Loader):
    """Loads as another loader does, and says so."""

    def __init__(self, loader: Any, told: Told) -> None:
        self._loader, self._told = loader, told

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The module is to look as if nobody had been here.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._told(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
