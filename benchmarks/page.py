"""The page of the figures, made of a template and of what was measured."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from benchmarks.figure import ORIGINAL, Figure, table
from benchmarks.growth import Curve, growth_table
from benchmarks.picture import draw

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.results import Measured, Results

TEMPLATE = Path(__file__).parent / "performance.md.in"
PICTURE = "pictures/growth.png"
ABOUT = {
    "steps": (
        "A training that saves the loss, a scalar and five reductions of 4 small tensors at every "
        "step, for longer and longer; then its run is opened."
    ),
    "tensors": (
        "A model with more and more small tensors, half of them gradients; five reductions of each "
        "are saved at every step."
    ),
    "workers": (
        "So many processes write 10 steps of 100 tensors with five reductions each into one run at "
        "once; a reader opens it, they write as much again, the reader looks again."
    ),
    "rows": "Runs of 1,000 tensors and more and more steps, one reduction each.",
}
TRIED_OUT = (
    "**These figures mean nothing: the measuring was only tried out, on a tenth of everything.**"
)


def write_page(path: Path, results: Results) -> None:
    """Writes the page, and the picture it shows beside it."""
    measured = list(results.measured.values())
    growth = by_size(measured)
    picture = path.parent / PICTURE
    if growth:
        picture.parent.mkdir(parents=True, exist_ok=True)
        draw(picture, growth)
    path.write_text(page(results), encoding="utf-8")


def page(results: Results) -> str:
    """The text of the page."""
    measured = list(results.measured.values())
    growth = by_size(measured)
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        tried_out=TRIED_OUT + "\n\n" if any(each.quick for each in measured) else "",
        machine="\n".join(f"| {key} | {value} |" for key, value in results.machine.items()),
        libraries=libraries(measured),
        minutes=f"{sum(each.seconds for each in measured) / 60:.0f}",
        load=f"{max((each.load for each in measured), default=0.0):.1f}",
        table=table([figure for each in measured for figure in figures_of(each)]),
        picture=f"![how costs grow]({PICTURE})" if growth else "Nothing was measured.",
        growth="\n\n".join(section(along, curves) for along, curves in growth.items()),
        durations=", ".join(f"{each.module} {each.seconds:.0f} s" for each in measured),
    )
    return text.rstrip() + "\n"


def section(along: str, curves: list[Curve]) -> str:
    """The table along one size, and what was done at each."""
    about = f"{ABOUT[along]}\n\n" if along in ABOUT else ""
    return f"### {along.capitalize()}\n\n{about}{growth_table(curves)}"


def figures_of(measured: Measured) -> list[Figure]:
    """A module's lines; one that says why, where it has none."""
    if measured.failed:
        return [Figure(measured.module, "", [], "", failed=measured.failed)]
    return measured.figures


def by_size(measured: Iterable[Measured]) -> dict[str, list[Curve]]:
    """The curves along each size, a cost's one below the other."""
    found: dict[str, list[Curve]] = {}
    for each in measured:
        for curve in each.curves:
            found.setdefault(curve.along, []).append(curve)
    for along, curves in found.items():
        order = list(dict.fromkeys(curve.what for curve in curves))
        found[along] = sorted(curves, key=lambda curve: order.index(curve.what))
    return found


def libraries(measured: list[Measured]) -> str:
    """Every version that something was measured with."""
    versions: dict[str, list[str]] = {}
    for each in measured:
        for library, version in each.versions.items():
            known = versions.setdefault(library, [])
            if version not in known:
                known.append(version)
    found = [f"{library} {' and '.join(known)}" for library, known in versions.items()]
    return ", ".join([*found, ORIGINAL])
