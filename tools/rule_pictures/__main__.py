"""Trains, lets each rule look, and draws what it looked at."""

from __future__ import annotations

import argparse
import io
import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image

from smdebug import create_trial
from smdebug.rules import rule_names
from tools.rule_pictures.drawings import DRAWINGS
from tools.rule_pictures.trainings import train

if TYPE_CHECKING:
    from smdebug.trials.trial import Trial

OVERVIEW = "plots"
PICTURES = Path(__file__).parent.parent.parent / "docs" / "pictures" / "rules"
WIDTH, HEIGHT = 700, 320
# Few enough for small files; lines are drawn with several shades of a colour each.
_COLORS = 128
_STYLE = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.alpha": 0.25, "legend.frameon": False,
}  # fmt: skip
# It writes a page and finds nothing.
_FINDS_NOTHING = {"CreateXgboostReport"}


def main() -> int:
    """Makes the pictures; 0 when every rule found something."""
    parser = argparse.ArgumentParser(prog="python -m tools.rule_pictures", description=__doc__)
    parser.add_argument("--only", action="append", metavar="RULE", help="this rule only")
    parser.add_argument("--runs", metavar="FOLDER", help="keep the runs here, and use them again")
    given = parser.parse_args()
    known = [*rule_names(), OVERVIEW]
    unknown = sorted(set(given.only or ()) - set(known))
    if unknown:
        parser.error(f"--only must be one of {', '.join(known)}; got {unknown[0]!r}")
    logging.getLogger("smdebug").setLevel(logging.ERROR)
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(given.runs or folder)
        for name in given.only or known:
            sys.stderr.write(f"{name} ...\n")
            if name == OVERVIEW:
                (PICTURES.parent / f"{name}.png").write_bytes(overview(runs))
            else:
                (PICTURES / f"{name}.png").write_bytes(picture(name, run_of(name, runs)))
    return 0


def run_of(rule: str, runs: Path) -> Trial:
    """The run of a rule, trained when it is not there."""
    if not (runs / rule).exists():
        train(rule, runs / rule)
    return create_trial(str(runs / rule))


def overview(runs: Path) -> bytes:
    """The kinds of plots that `Trial.plot` makes."""
    figure = Figure((10.5, 6.4), dpi=100, layout="constrained")
    (losses, lines), (heat, ridges) = figure.subplots(2, 2)
    run_of("Overfit", runs).plot(ax=losses)
    layers = run_of("VanishingGradient", runs)
    layers.plot(collection="gradients", reduction="abs_mean", ax=lines)
    run_of("NonFinite", runs).plot(".", reduction="nans", kind="heat", ax=heat)
    heat.set_xlim(60, 75)
    run_of("WeightUpdateRatio", runs).plot("fc2.weight", step=[0, 20, 40, 60], ax=ridges)
    return small_png(figure)


def picture(rule: str, trial: Trial) -> bytes:
    """What a rule looked at, as a PNG."""
    found = [each for each in trial.findings() if each.rule == rule]
    if not found and rule not in _FINDS_NOTHING:
        raise SystemExit(f"{rule} must find something in its run, and found nothing")
    with rc_context(_STYLE):
        figure = Figure((WIDTH / 100, HEIGHT / 100), dpi=100, layout="constrained")
        DRAWINGS[rule](trial, figure)
        return small_png(figure)


def small_png(figure: Any) -> bytes:
    """A figure as a PNG with a palette."""
    plain, small = io.BytesIO(), io.BytesIO()
    figure.savefig(plain, format="png")
    image = Image.open(plain).convert("RGB")
    image = image.quantize(_COLORS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    image.save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    sys.exit(main())
