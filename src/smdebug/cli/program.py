"""A Python program that runs in this process as `__main__`."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Program:
    """A script or a module, with its arguments.

    Args:
        name: the path of a script, or the name of a module.
        arguments: `sys.argv` after the name.
        is_module: whether the name is that of a module, as in `python -m`.
    """

    name: str
    arguments: list[str]
    is_module: bool = False

    def check(self) -> None:
        """Raise `SMDebugValueError` if the script does not exist."""
        if not self.is_module and not Path(self.name).is_file():
            raise SMDebugValueError(
                f"the program must be a Python script, got {self.name!r}, which is no file; a "
                "module is run with -m NAME"
            )

    def load(self) -> Callable[[], None]:
        """Find and compile it; return a function that runs it.

        That function raises `SystemExit` if the program exits or raises; an exception is shown
        as Python would show it.

        Raises:
            SMDebugValueError: the module does not exist.
        """
        # The interpreter has put the directory of the launcher there.
        if not getattr(sys.flags, "safe_path", False):
            here = Path.cwd() if self.is_module else Path(self.name).resolve().parent
            sys.path[0] = str(here)
        spec, code = self._find_code()
        file = spec.origin or self.name
        main = ModuleType("__main__")
        # Processes started by `multiprocessing` read these.
        attributes: dict[str, Any] = {"__file__": file, "__cached__": None}
        attributes["__spec__"] = spec if self.is_module else None
        attributes["__loader__"] = spec.loader
        attributes["__package__"] = spec.parent if self.is_module else None
        vars(main).update(attributes)
        sys.modules["__main__"] = main
        sys.argv = [file if self.is_module else self.name, *self.arguments]

        def run() -> None:
            try:
                exec(code, vars(main))
            except Exception as error:
                # Without the frame of this function.
                inner = None if error.__traceback__ is None else error.__traceback__.tb_next
                sys.excepthook(type(error), error.with_traceback(inner), inner)
                sys.exit(1)

        return run

    def _find_code(self) -> tuple[ModuleSpec, CodeType]:
        if not self.is_module:
            file = str(Path(self.name).absolute())
            loader = SourceFileLoader("__main__", file)
            try:
                code = loader.source_to_code(Path(file).read_bytes(), file)
            except SyntaxError as error:
                sys.excepthook(type(error), error.with_traceback(None), None)
                sys.exit(1)
            return ModuleSpec("__main__", loader, origin=file), code
        spec = self._spec_of(self.name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = self._spec_of(f"{self.name}.__main__")
        get_code = getattr(None if spec is None else spec.loader, "get_code", None)
        found = None if spec is None or get_code is None else get_code(spec.name)
        if spec is None or found is None:
            raise SMDebugValueError(
                f"-m must name a module that can be run, got {self.name!r}, which cannot be found "
                "or has no __main__"
            )
        return spec, found

    @staticmethod
    def _spec_of(name: str) -> ModuleSpec | None:
        try:
            return importlib.util.find_spec(name)
        except ModuleNotFoundError as error:
            # Another module that the package imports is missing.
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            return None
