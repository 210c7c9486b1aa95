"""`smdebug layers`: which numbers stand where, and how it ends."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.command import on_terminal, smdebug

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path

LAYERS, STEPS = 70, 40
TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL


def norm(layer: int, step: int) -> float:
    """From 1e-10 at the first layer to 1; broken in the middle, from some step on."""
    if layer == 33 and step >= 24:
        return float("nan") if step % 8 else float("inf")
    return float(10.0 ** (-10 + layer / 7) * (1 + step))


def weight(layer: int, step: int) -> Any:
    return np.random.default_rng([layer, step]).standard_normal((2, 3)).astype(np.float32)


def batch(worker: str, step: int) -> StepBatch:
    """A loss at every step; every fourth, gradients, the last layer first, and two weights."""
    entries = [Entry("loss", np.asarray(1.0 / (step + 1)))]
    if step % 4 == 0:
        for layer in reversed(range(LAYERS)):
            saved = {"l2": norm(layer, step), "mean": -1.0}
            entries.append(Entry(f"gradient/layer{layer}.weight", None, saved, (2, 3), "float32"))
        entries += [Entry(f"layer{layer}.weight", weight(layer, step)) for layer in (7, 3)]
    mode = EVAL if step % 8 == 4 else TRAIN
    return StepBatch(step, mode, step + 100, entries)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    collections = CollectionManager(
        [
            Collection("losses", include_regex="loss"),
            Collection("gradients", include_regex="^gradient"),
            Collection("weights", include_regex="^layer"),
            Collection("empty", include_regex="nothing"),
        ]
    )
    for format in ("v2", "v1"):
        make_run(folder / format, range(STEPS), format=format, data=batch, collections=collections)
    make_run(folder / "plain", range(5), workers=["w0", "w1"])
    make_run(folder / "none", steps=[])
    return folder


def grid(directory: Path, *arguments: str) -> tuple[list[int], list[str], Any]:
    told = json.loads(smdebug(directory, "layers", *arguments, "--json").stdout)
    values = [[np.nan if each is None else float(each) for each in row] for row in told["values"]]
    return told["steps"], told["tensors"], np.array(values)


@pytest.mark.parametrize("format", ["v2", "v1"])
def test_saved_numbers(runs: Path, format: str) -> None:
    steps, tensors, values = grid(runs, format, "--steps", "4")
    # Where gradients were saved, which is not where losses were.
    assert steps == [0, 12, 24, 36]
    # In the order of their execution.
    layers = list(reversed(range(LAYERS)))
    assert tensors == [f"gradient/layer{layer}.weight" for layer in layers]
    expected = [[norm(layer, step) for step in steps] for layer in layers]
    # Format v1 keeps them in 32 bits.
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize("format", ["v2", "v1"])
def test_computed_numbers(runs: Path, format: str) -> None:
    arguments = ["--collection", "weights", "--reduction", "abs_max", "--mode", "train"]
    steps, tensors, values = grid(runs, format, *arguments)
    assert steps == [100, 108, 116, 124, 132]
    assert tensors == ["layer7.weight", "layer3.weight"]
    expected = [[np.abs(weight(layer, step - 100)).max() for step in steps] for layer in (7, 3)]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_the_table(runs: Path) -> None:
    shown = smdebug(runs, "layers", "v2").stdout
    lines = shown.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0] == "gradients, l2, at 6 of 10 steps"
    assert lines[1].split() == ["tensor", "0", "8", "16", "20", "28", "36"]
    rows = [line.split() for line in lines[2 : lines.index("")]]
    assert len(rows) == 50
    assert rows[0][0] == "gradient/layer69.weight"
    assert rows[-1] == [
        "gradient/layer0.weight",
        "1.0e-10",
        "9.0e-10",
        "1.7e-9",
        "2.1e-9",
        "2.9e-9",
        "3.7e-9",
    ]
    assert lines[-2:] == [
        "20 of 70 tensors are not shown; --rows N shows more",
        "1 of those has NaN or Inf saved at these steps",
    ]
    whole = smdebug(runs, "layers", "v2", "--rows", "100", "--steps", "2").stdout
    assert "not shown" not in whole
    rows = [line.split() for line in whole.splitlines() if "layer33." in line]
    assert rows == [["gradient/layer33.weight", "5.2e-6", "NaN"]]
    # NaN is counted in hidden tensors, too.
    some = smdebug(runs, "layers", "v2", "--rows", "2").stdout
    assert some.endswith("\n1 of those has NaN or Inf saved at these steps\n")


def test_the_colours_of_a_terminal(runs: Path) -> None:
    code, shown = on_terminal(runs, "layers", "v2", "--regex", "gradient/layer3[23]", "--follow")
    assert code == 0
    cells = re.findall(r"\x1b\[([0-9;]+)m +([0-9.e-]+|NaN|Inf) \x1b\[0m", shown)
    grounds = {text: re.findall(r"48;5;(\d+)", style)[0] for style, text in cells if "48;" in style}
    assert grounds["NaN"] not in {grounds[text] for text in grounds if text[0].isdigit()}
    code, plain = on_terminal(runs, "layers", "v2", "--regex", "layer33", NO_COLOR="1")
    assert (code, "48;5" in plain, "NaN" in plain) == (0, False, True)


def test_following_without_a_terminal(runs: Path) -> None:
    ended = smdebug(runs, "layers", "v2", "--regex", "gradient/layer3[34]", "--follow")
    rows = [line.split("\t") for line in ended.stdout.splitlines()]
    cells = [(layer, step) for step in range(0, STEPS, 4) for layer in (34, 33)]
    names = [[str(step), f"gradient/layer{layer}.weight"] for layer, step in cells]
    assert [row[:2] for row in rows] == names
    norms = [norm(layer, step) for layer, step in cells]
    np.testing.assert_allclose([float(row[2]) for row in rows], norms, rtol=1e-6)


def test_workers_and_what_is_missing(runs: Path) -> None:
    written = make_run(runs / "again", range(5), workers=["w0", "w1"])
    for worker in ("w0", "w1"):
        _, _, values = grid(runs, "plain", "--worker", worker)
        tensors = [written[worker, step].entries[1].value for step in range(5)]
        norms = [np.linalg.norm(np.asarray(each, np.float64)) for each in tensors]
        np.testing.assert_allclose(values, [norms], rtol=1e-6)
    # A loss has a number at every step; gradients have not.
    told = smdebug(runs, "layers", "v2", "--regex", "loss|layer0", "--steps", "20").stdout
    assert "·" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "a hook has saved to, got 'nowhere'"),
        (["v2", "--reduction", "l3"], "unknown reduction 'l3'"),
        (["v2", "--reduction", "std"], "none of 70 tensors was saved with std"),
        (["v2", "--collection", "weigths"], "one of empty, gradients, losses, weights, got"),
        (["v2", "--collection", "empty"], "no tensors of collection 'empty'"),
        (["v2", "--regex", "xyz"], "no tensors whose name has 'xyz'"),
        (["v2", "--regex", "("], "--regex must be a regular expression, got '('"),
        (["v2", "--mode", "predict"], "--mode must be one that the run has steps of"),
        (["v2", "--worker", "w"], "Invalid worker: w"),
        (["none"], "neither gradients nor weights"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense(runs: Path, arguments: list[str], said: str) -> None:
    ended = smdebug(runs, "layers", *arguments, code=2)
    assert said in ended.stderr
    assert ended.stdout == ""


def odd(worker: str, step: int) -> StepBatch:
    """Steps with long numbers, of tensors that are not all real."""
    entries = [Entry("loss", np.asarray([1.0, 3.0])), Entry("complex", np.asarray([1j, 2.0]))]
    entries += [Entry("words", np.array(["text"])), Entry("more", np.asarray([2.0, np.nan]))]
    entries += [Entry("other", np.asarray([5.0]))] if worker == "w1" else []
    return StepBatch(step, TRAIN, step, entries)


LONG = [999999999990 + number for number in range(10)]


@pytest.fixture(scope="module")
def odd_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    collections = CollectionManager([Collection("losses", include_regex="loss")])
    make_run(folder / "run", LONG, ["w0", "w1"], data=odd, collections=collections)
    return folder


def test_tensors_without_such_a_number(odd_run: Path) -> None:
    arguments = ["layers", "run", "--regex", "complex|loss|words", "--reduction", "std"]
    for more in ([], ["--json"], ["--follow"]):
        ended = smdebug(odd_run, *arguments, *more)
        # Once, in the order of their execution.
        assert ended.stderr.startswith("smdebug: skipped: complex, words: std was not")
        assert ended.stderr.count("skipped") == 1
        assert "complex" not in ended.stdout
    told = json.loads(smdebug(odd_run, *arguments, "--json").stdout)
    assert (told["tensors"], told["values"]) == (["loss"], [[1.0] * 10])
    refused = smdebug(odd_run, "layers", "run", "--regex", "words", code=2)
    assert "at these steps; no reductions were saved in this run" in refused.stderr
    others = smdebug(odd_run, "layers", "run", "--regex", "loss|other", "--worker", "w0")
    assert others.stderr.startswith("smdebug: skipped: other: l2 was not saved")
    # What is asked for does not appear among what there is.
    refused = smdebug(odd_run, "layers", "run", code=2)
    assert "neither gradients nor weights; name a --collection of losses, or" in refused.stderr


@pytest.mark.parametrize(("width", "fits"), [(24, 1), (40, 2), (80, 5), (200, 10)])
def test_the_columns_fit(odd_run: Path, width: int, fits: int) -> None:
    shown = smdebug(
        odd_run, "layers", "run", "--regex", "loss|more", "--steps", "100", COLUMNS=str(width)
    ).stdout
    title, rest = shown.split("\ntensor", 1)
    said = f"at {fits} of 10 steps" + (" (10 do not fit)" if fits < 10 else "")
    assert said in " ".join(title.split())
    lines = rest.splitlines()
    head, row = lines[0].split(), lines[1]
    assert len(head) == fits
    assert {int(step) for step in head} <= set(LONG)
    assert max(len(line) for line in (f"tensor{lines[0]}", row)) <= width
    # Each number ends below the end of its step.
    ends = [match.end() for match in re.finditer(r"\S+", f"tensor{lines[0]}")][1:]
    assert [match.end() for match in re.finditer(r"\S+", row)][1:] == ends


def test_what_is_left_out_is_not_computed(odd_run: Path) -> None:
    shown = smdebug(odd_run, "layers", "run", "--regex", "loss|more", "--rows", "1").stdout
    assert shown.splitlines()[-2:] == [
        "1 of 2 tensors are not shown; --rows N shows more",
        "reductions that were not saved are not computed for hidden tensors",
    ]


def test_long_names_are_told_apart(tmp_path: Path) -> None:
    """They differ in the middle, by the number of the layer, as those of large models do."""
    names = [
        f"gradient/model.encoder.layers.{layer}.self_attention.{part}.dense.weight"
        for layer in (11, 2, 1)
        for part in ("query", "key")
    ]

    def saved(worker: str, step: int) -> StepBatch:
        entries = [Entry(name, None, {"l2": 1.0}, (2, 3), "float32") for name in names]
        return StepBatch(step, TRAIN, step, entries)

    make_run(tmp_path / "run", range(12), data=saved)
    shown = smdebug(tmp_path, "layers", "run", "--regex", "gradient", COLUMNS="80").stdout
    rows = [line for line in shown.splitlines() if "…" in line]
    assert len({row.split()[0] for row in rows}) == len(names)
    assert max(map(len, rows)) <= 80
