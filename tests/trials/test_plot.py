"""What is plotted is what was saved, and mistakes are answered in words."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from smdebug import create_trial, modes
from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import InvalidWorker, SMDebugError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.findings import Finding, write_findings
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing import make_run
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smdebug.storage.stores.base import Store

LAYERS = ("conv", "deep", "a_head")


def norm(layer: int, step: int) -> float:
    """Layers are three decades apart."""
    return float(np.float32((step + 1) * 10.0 ** (-3 * layer)))


def batch(worker: str, step: int) -> StepBatch:
    """Every third step is one of validation."""
    mode = ModeKeys.EVAL if step % 3 == 2 else ModeKeys.TRAIN
    random = np.random.default_rng(step)
    weight = random.standard_normal((40, 50)).astype(np.float32)
    weight[0, :4] = [np.nan, np.inf, -np.inf, np.nan]
    loss = {4: np.nan, 7: np.inf}.get(step, 10.0 / (step + 1))
    entries = [
        Entry("loss", np.float32(loss)),
        *(
            Entry(f"gradient/{name}", reductions={"l2": norm(place, step)})
            for place, name in enumerate(LAYERS)
        ),
        Entry("fc.weight", weight),
    ]
    return StepBatch(
        step, mode, (step // 3 if mode is ModeKeys.EVAL else step - step // 3), entries
    )


def collections() -> CollectionManager:
    return CollectionManager(
        [
            Collection("losses", include_regex="^loss$"),
            Collection("gradients", include_regex="^gradient/"),
            Collection("nothing", include_regex="^nothing$"),
        ]
    )


def trial_of(data: Callable[[str, int], StepBatch], **options: Any) -> Trial:
    store: Store = MemoryStore()
    given = {"steps": range(12), "collections": collections(), **options}
    make_run(store, data=data, **given)
    return Trial("memory", "made", store=store)


@pytest.fixture
def trial() -> Trial:
    return trial_of(batch)


def new_axes() -> Any:
    return Figure().add_subplot()


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines() if len(line.get_xdata())}


def cells(mesh: Any) -> Any:
    """The values of a heat map, a row per tensor; older matplotlibs have them in one row."""
    rows, columns = (length - 1 for length in mesh.get_coordinates().shape[:2])
    return mesh.get_array().reshape(rows, columns)


def test_losses(trial: Trial) -> None:
    findings = [
        Finding("LossSpike", 5, "m"),
        Finding("LossSpike", 8, "m"),
        Finding("Overfit", 2, "m", mode=ModeKeys.EVAL, mode_step=0),
    ]
    write_findings(trial.store, findings)
    axes = new_axes()
    assert trial.plot(ax=axes) is axes
    found = lines(axes)
    for mode, label in ((ModeKeys.TRAIN, "loss, train"), (ModeKeys.EVAL, "loss, eval")):
        steps = [step for step in range(12) if (step % 3 == 2) == (mode is ModeKeys.EVAL)]
        expected = [np.nan if step in (4, 7) else np.float32(10 / (step + 1)) for step in steps]
        np.testing.assert_array_equal(found[label].get_xdata(), steps)
        np.testing.assert_array_equal(found[label].get_ydata(), expected)
    assert found["loss, train"].get_linestyle() != found["loss, eval"].get_linestyle()
    assert list(found["NaN"].get_xdata()) == [4]
    assert list(found["Inf"].get_xdata()) == [7]
    marked = [line.get_xdata()[0] for line in axes.get_lines() if line.get_linestyle() == "--"]
    assert {5, 8, 2} <= set(marked)
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"LossSpike, step 5 and later", "Overfit, step 2"} <= set(texts)
    # In the numbering of a mode, findings of others are not there.
    axes = trial.plot(mode=modes.EVAL, ax=new_axes())
    assert list(lines(axes)["loss"].get_xdata()) == [0, 1, 2, 3]
    assert lines(axes)["Overfit, step 0"].get_xdata()[0] == 0
    assert not [name for name in lines(axes) if "Spike" in name]
    axes.set_xlim(0.5, 3.5)
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_scalars_where_there_are_no_losses() -> None:
    def data(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry("rate", np.array(step * 0.5))])

    manager = CollectionManager([Collection("scalars", include_regex="rate")])
    axes = trial_of(data, collections=manager).plot(ax=new_axes())
    np.testing.assert_array_equal(lines(axes)["rate"].get_ydata(), np.arange(12) * 0.5)


def test_a_loss_of_many_numbers_is_its_mean() -> None:
    def data(worker: str, step: int) -> StepBatch:
        value = np.arange(4, dtype=np.float64) + step
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry("loss", value)])

    axes = trial_of(data).plot(ax=new_axes())
    np.testing.assert_array_equal(lines(axes)["loss"].get_ydata(), np.arange(12) + 1.5)


def test_layers_in_the_order_of_computation(trial: Trial) -> None:
    for axes in (
        trial.plot("gradient/.*", reduction="l2", ax=new_axes()),
        trial.plot("gradient/*", reduction="l2", ax=new_axes()),
        trial.plot(collection="gradients", reduction="l2", ax=new_axes()),
        trial.plot([f"gradient/{name}" for name in LAYERS], reduction="l2_norm", ax=new_axes()),
    ):
        assert list(lines(axes)) == [f"gradient/{name}" for name in LAYERS]
        for place, line in enumerate(axes.get_lines()):
            np.testing.assert_array_equal(line.get_xdata(), range(12))
            np.testing.assert_array_equal(line.get_ydata(), [norm(place, s) for s in range(12)])
        assert axes.get_yscale() == "log"
        assert axes.get_ylabel() == "l2"
    near = trial.plot("gradient/conv", reduction="l2", ax=new_axes())
    assert near.get_yscale() == "linear"
    assert "gradient/conv" in near.get_title(loc="left")


def test_a_reduction_that_is_computed_from_values(trial: Trial) -> None:
    axes = trial.tensor("fc.weight").plot("nans", mode=modes.TRAIN, ax=new_axes())
    assert list(lines(axes)["fc.weight"].get_ydata()) == [2.0] * 8
    axes = trial.plot("fc.weight", reduction="nans", kind="heat", ax=new_axes())
    np.testing.assert_array_equal(cells(axes.collections[0]), np.full((1, 12), 2.0))


def test_heat(trial: Trial) -> None:
    axes = trial.plot("gradient/", reduction="l2", kind="heat", mode=modes.TRAIN, ax=new_axes())
    train = [step for step in range(12) if step % 3 != 2]
    expected = [[norm(place, step) for step in train] for place in range(3)]
    mesh = axes.collections[0]
    np.testing.assert_array_equal(cells(mesh), expected)
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        f"gradient/{name}" for name in LAYERS
    ]
    # Cells lie around the steps of the mode.
    np.testing.assert_array_equal(mesh.get_coordinates()[0, :, 0], np.arange(9) - 0.5)
    # Numbers need no reduction; NaN and infinity have cells of their own.
    axes = trial.plot("loss", kind="heat", ax=new_axes())
    good, bad = axes.collections[:2]
    assert np.flatnonzero(np.ma.getmaskarray(good.get_array())).tolist() == [4, 7]
    assert np.flatnonzero(~np.ma.getmaskarray(bad.get_array())).tolist() == [4, 7]


def test_many_steps_share_the_columns_of_a_heat_map() -> None:
    values = np.random.default_rng(0).standard_normal(2000)
    values[777] = np.nan

    def data(worker: str, step: int) -> StepBatch:
        entries = [Entry("loss", np.array(values[step]))]
        if step % 2 == 0:
            entries.append(Entry("gradient/a", reductions={"mean": float(values[step])}))
        return StepBatch(step, ModeKeys.TRAIN, step, entries)

    trial = trial_of(data, steps=range(2000))
    axes = trial.plot("loss", kind="heat", ax=new_axes())
    stretches = np.array_split(np.where(np.isnan(values), 0, values), range(3, 2000, 3))
    expected = [part[np.abs(part).argmax()] for part in stretches]
    np.testing.assert_array_equal(cells(axes.collections[0])[0], expected)
    assert np.flatnonzero(~np.ma.getmaskarray(axes.collections[1].get_array())).tolist() == [259]
    assert "up to 3 steps each" in axes.get_title(loc="left")


def test_of_several_workers_the_first_counts() -> None:
    def data(worker: str, step: int) -> StepBatch:
        value = step + (100.0 if worker == "worker_1" else 0.0)
        entries = [Entry("gradient/a", reductions={"l2": value})]
        if worker == "worker_1":
            entries.append(Entry("gradient/b", reductions={"l2": value}))
        return StepBatch(step, ModeKeys.TRAIN, step, entries)

    trial = trial_of(data, workers=("worker_0", "worker_1"), steps=range(3))
    mesh = trial.plot("gradient", reduction="l2", kind="heat", ax=new_axes()).collections[0]
    np.testing.assert_array_equal(cells(mesh), [[0, 1, 2], [100, 101, 102]])
    mesh = trial.plot("gradient/a", reduction="l2", kind="heat", worker="worker_1",
                      ax=new_axes()).collections[0]  # fmt: skip
    np.testing.assert_array_equal(cells(mesh), [[100, 101, 102]])
    axes = trial.plot("gradient/a", reduction="l2", worker="worker_1", ax=new_axes())
    assert list(axes.get_lines()[0].get_ydata()) == [100, 101, 102]
    with pytest.raises(InvalidWorker, match="worker_7"):
        trial.plot("gradient", reduction="l2", kind="heat", worker="worker_7", ax=new_axes())


def test_of_very_many_tensors_some_are_drawn() -> None:
    def data(worker: str, step: int) -> StepBatch:
        entries = [Entry(f"gradient/{i:03d}", reductions={"l2": 1.0 + i}) for i in range(200)]
        return StepBatch(step, ModeKeys.TRAIN, step, entries)

    trial = trial_of(data, steps=range(2))
    axes = trial.plot(collection="gradients", reduction="l2", ax=new_axes())
    drawn = [line.get_ydata()[0] for line in axes.get_lines()]
    assert len(drawn) == 40
    assert (drawn[0], drawn[-1]) == (1.0, 200.0)
    assert drawn == sorted(drawn)
    assert "200 tensors" in axes.get_title(loc="left")
    assert "40 of them drawn" in axes.get_title(loc="left")
    (bar,) = [each for each in axes.figure.axes if each is not axes]
    assert [text.get_text() for text in bar.get_yticklabels()] == ["gradient/000", "gradient/199"]
    # Those that rules found something in are among them.
    found = [Finding("Rule", 1, "m", tensor=f"gradient/{number:03d}") for number in (101, 102)]
    write_findings(trial.store, found)
    axes = trial.plot(collection="gradients", reduction="l2", ax=new_axes())
    drawn = [line.get_ydata()[0] for line in axes.get_lines() if len(line.get_xdata()) == 2]
    assert {1.0, 102.0, 103.0, 200.0} <= set(drawn)
    assert len(axes.get_lines()) <= 41
    heat = trial.plot(collection="gradients", reduction="l2", kind="heat", ax=new_axes())
    np.testing.assert_array_equal(cells(heat.collections[0])[:, 0], 1.0 + np.arange(200))


def test_histogram(trial: Trial) -> None:
    axes = trial.plot("fc.weight", step=5, ax=new_axes())
    weight = next(entry.value for entry in batch("", 5).entries if entry.name == "fc.weight")
    assert weight is not None
    finite = weight[np.isfinite(weight)].astype(np.float64)
    (patch,) = axes.patches
    counts, edges, _ = patch.get_data()
    np.testing.assert_array_equal(counts, np.histogram(finite, edges)[0])
    assert counts.sum() == len(finite) == 1996
    assert (edges[0], edges[-1]) == (finite.min(), finite.max())
    title = axes.get_title(loc="left")
    expected = f"min {finite.min():.3g}, max {finite.max():.3g}, mean {finite.mean():.3g}"
    assert f"{expected}, std {finite.std():.3g}, 2 NaN, 2 Inf" in title
    # In the numbering of a mode: step 1 of validation is step 5.
    same = trial.tensor("fc.weight").plot(step=1, mode=modes.EVAL, ax=new_axes())
    np.testing.assert_array_equal(same.patches[0].get_data()[0], counts)


def test_ridges(trial: Trial) -> None:
    axes = trial.plot("fc.weight", step=range(12), ax=new_axes())
    assert len(axes.patches) == 12
    for place, patch in enumerate(axes.patches):
        heights, edges, baseline = patch.get_data()
        weight = batch("", place).entries[-1].value
        assert weight is not None
        counts = np.histogram(weight[np.isfinite(weight)].astype(np.float64), edges)[0]
        assert baseline == place
        shares = (heights - place) / (heights - place).max()
        np.testing.assert_allclose(shares, counts / counts.max(), rtol=1e-12)
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels[3] == "step 3\n2 NaN, 2 Inf"
    assert "24 NaN, 24 Inf" in axes.get_title(loc="left")


@pytest.mark.parametrize(
    "value", [np.full(3, 2.5), np.zeros(3), np.array([-3e38, 3e38], np.float32), np.zeros(0),
              np.array([np.nan]), np.arange(5), np.array([True, False])],
    ids=["constant", "zero", "huge", "empty", "nan", "int", "bool"],
)  # fmt: skip
def test_histograms_of_odd_values(value: Any) -> None:
    def data(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry("odd", value)])

    axes = trial_of(data, steps=range(2)).plot("odd", step=0, ax=new_axes())
    counts = axes.patches[0].get_data()[0]
    assert counts.sum() == np.isfinite(value.astype(float)).sum()
    axes.figure.canvas.draw()


def test_values_that_are_too_far_apart() -> None:
    def data(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry("odd", np.array([-1.7e308, 1.7e308]))])

    with pytest.raises(SMDebugError, match=r"-1.7e\+308 to 1.7e\+308.*too far apart"):
        trial_of(data).plot("odd", step=0, ax=new_axes())


def test_names_that_matplotlib_would_read_as_something_else() -> None:
    names = ["_hidden", r"$\frac{", "a$b$c", "line\nbreak", "x" * 300]

    def data(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry(each, np.array(1.0)) for each in names])

    trial = trial_of(data)
    axes = trial.plot(names, ax=new_axes())
    write_findings(trial.store, [Finding(r"_$\frac{$", 1, "m", tensor=names[0])])
    assert len(trial.plot(names, ax=new_axes()).get_legend().get_texts()) == len(names) + 1
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(texts) == len(names)
    for kind in (axes, trial.plot(names, kind="heat", ax=new_axes())):
        kind.figure.canvas.draw()


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"tensors": "gradient/conf"}, r"gradient/conf.*did you mean gradient/conv"),
    "regex": ({"tensors": "gradient/("}, "no regex"),
    "no name": ({"tensors": []}, "empty|list"),
    "a number": ({"tensors": 3}, "list of them, got 3 of type int"),
    "no text": ({"tensors": [3]}, "must be names or regexes, got 3"),
    "collection": ({"collection": "gradient"}, "did you mean gradients"),
    "empty collection": ({"collection": "nothing"}, "holds no tensor.*gradients, losses"),
    "no collection": ({"collection": 3}, "name or a Collection, got 3"),
    "both": ({"tensors": "a", "collection": "losses"}, "either tensors or collection"),
    "reduction": ({"tensors": "gradient/", "reduction": "l3"}, "got 'l3'; did you mean l"),
    "not saved": ({"tensors": "gradient/", "reduction": "std"}, "saved of it are l2"),
    "not a number": ({"tensors": "fc.weight"}, "name a reduction.*or a step"),
    "heat of no number": ({"tensors": "gradient/", "kind": "heat"}, "saved of it are l2"),
    "kind": ({"tensors": "loss", "kind": "hate"}, "got 'hate'; did you mean heat"),
    "step": ({"tensors": "fc.weight", "step": 99}, r"[Ss]tep 99.*nearest steps.*9, 10, 11"),
    "half a step": ({"tensors": "fc.weight", "step": [1, 2.5]}, r"got \[1, 2.5\]"),
    "no step": ({"tensors": "fc.weight", "step": "first"}, "got 'first'"),
    "step of reductions": ({"tensors": "gradient/conv", "step": 3}, "gradient/conv"),
    "step and reduction": ({"tensors": "fc.weight", "step": 3, "reduction": "l2"}, "cannot be"),
    "losses by step": ({"step": 3}, "tensors or collection must be given"),
    "mode": ({"mode": "train"}, "modes.TRAIN.*got 'train'"),
    "absent mode": ({"mode": modes.PREDICT}, "TRAIN, EVAL.*got PREDICT"),
    "ax": ({"ax": 3}, "axes of matplotlib.*got 3"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_answered_in_words(trial: Trial, mistake: str) -> None:
    arguments, words = MISTAKES[mistake]
    with pytest.raises(SMDebugError, match=f"(?s){words}"):
        trial.plot(**{"ax": new_axes(), **arguments})


def test_a_run_without_numbers() -> None:
    def data(worker: str, step: int) -> StepBatch:
        return StepBatch(step, ModeKeys.TRAIN, step, [Entry("w", np.zeros(3))])

    with pytest.raises(SMDebugError, match=r"no losses, metrics or scalars.*1 tensors?: w"):
        trial_of(data).plot(ax=new_axes())


IN_A_PROCESS_OF_ITS_OWN = """
import sys
from smdebug import create_trial

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "matplotlib":
            raise ImportError("blocked", name=name)

sys.meta_path.insert(0, Blocked())
trial = create_trial(sys.argv[1])
assert "<svg" in trial._repr_html_() and "fc.weight" in trial.tensor("fc.weight")._repr_html_()
for arguments in ({}, {"tensors": "loss", "kind": "heat"}, {"tensors": "fc.weight", "step": 0}):
    try:
        trial.plot(**arguments)
    except RuntimeError as error:
        assert str(error) == "plots need matplotlib: pip install 'tornasole[plot]'", error
    else:
        raise SystemExit("plotted without matplotlib")
sys.meta_path.pop(0)

from matplotlib.figure import Figure
axes = Figure().add_subplot()
for arguments in ({}, {"tensors": "loss", "kind": "heat"}, {"tensors": "fc.weight", "step": 0}):
    assert trial.plot(**arguments, ax=axes) is axes
assert "matplotlib.pyplot" not in sys.modules

import matplotlib
matplotlib.use("svg")
from matplotlib import pyplot
def show(*arguments, **options):
    raise SystemExit("shown")
pyplot.show = show
axes = trial.plot()
assert matplotlib.get_backend().lower() == "svg"
assert pyplot.gcf() is axes.figure
"""


def test_matplotlib_is_imported_late_and_left_as_it_is(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IN_A_PROCESS_OF_ITS_OWN, str(tmp_path / "run")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_run_of_format_v1(tmp_path: Path) -> None:
    make_run(tmp_path / "run", format="v1", steps=range(5), data=batch, collections=collections())
    trial = create_trial(str(tmp_path / "run"))
    axes = trial.plot("gradient/", reduction="l2", kind="heat", ax=new_axes())
    expected = [[norm(place, step) for step in range(5)] for place in range(3)]
    np.testing.assert_allclose(cells(axes.collections[0]), expected)
    axes = trial.plot(ax=new_axes())
    steps = [0, 1, 3]
    np.testing.assert_allclose(
        lines(axes)["loss, train"].get_ydata()[:3], [10 / (step + 1) for step in steps]
    )


def test_long_names_are_told_apart() -> None:
    """Those of large models differ in the middle, by the number of the layer."""
    names = [f"gradient/encoder.layers.{each}.attention.output.dense.weight" for each in range(12)]
    trial = trial_of(
        lambda worker, step: StepBatch(
            step, ModeKeys.TRAIN, step, [Entry(name, reductions={"l2": 1.0}) for name in names]
        )
    )
    for kind in ("lines", "heat"):
        axes = trial.plot(names, reduction="l2", kind=kind, ax=new_axes())
        ends = axes if kind == "heat" else axes.figure.axes[1]
        shown = [each.get_text() for each in ends.get_yticklabels()]
        assert len(shown) == len(set(shown)) > 1, kind
        assert max(map(len, shown)) <= 36
