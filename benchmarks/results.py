"""What was measured, kept in a file as soon as it is there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.figure import Figure
from benchmarks.growth import Curve

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Measured:
    """What one module found.

    Attributes:
        module: its name.
        figures: lines of the table.
        curves: how costs grow.
        seconds: how long it took.
        load: of the machine, before it began.
        versions: of the libraries it could use.
        failed: why it found nothing.
        quick: it was but tried out.
    """

    module: str
    figures: list[Figure] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    seconds: float = 0.0
    load: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    failed: str = ""
    quick: bool = False


@dataclass
class Results:
    """All that was measured, by module.

    Attributes:
        machine: what it was measured on, by what that is called.
        measured: by module, in the order it was measured.
    """

    machine: dict[str, str] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Results:
        """What a file holds; nothing where there is none."""
        if not path.exists():
            return cls()
        content = json.loads(path.read_text(encoding="utf-8"))
        measured = {name: measured_from(each) for name, each in content["measured"].items()}
        return cls(content["machine"], measured)

    def save(self, path: Path) -> None:
        """Replaces the file, or leaves it as it is: an interrupted run goes on from it."""
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        beside.replace(path)

    def has(self, module: str, quick: bool) -> bool:
        """Whether a module has measured, as thoroughly as it is asked to now."""
        found = self.measured.get(module)
        return found is not None and not found.failed and found.quick == quick


def measured_from(content: dict[str, Any]) -> Measured:
    """The reverse of `asdict`."""
    figures = [Figure(**each) for each in content.pop("figures")]
    curves = [
        Curve(**{**each, "points": [(size, values) for size, values in each["points"]]})
        for each in content.pop("curves")
    ]
    return Measured(figures=figures, curves=curves, **content)
