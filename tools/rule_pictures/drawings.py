"""What each rule looks at, over the steps, with its limit and what it found."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug import create_trial, modes
from smdebug.rules.detectors.spikes import SpikeLimits
from smdebug.trials.curves import course
from smdebug.trials.plot.finding_markers import mark_findings
from smdebug.trials.plot.trial_plot import wants_log
from tools.rule_pictures.trainings import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.trials.trial import Trial

LIMIT = {"color": "#444444", "linestyle": (0, (1, 1.5)), "linewidth": 1.4}
_SHORT = (("CrossEntropyLoss_output_0", "loss"), ("DistributedDataParallel_module.", ""),
          ("Listener_", ""), ("Mlp_", ""))  # fmt: skip


def finish(axes: Any, trial: Trial | None, title: str, ylabel: str = "", **legend: Any) -> None:
    """Marks what was found, and says what is seen."""
    if trial is not None:
        mark_findings(axes, trial, None, modes.GLOBAL)
    axes.set_title(title, loc="left", fontsize="medium", fontweight="bold")
    axes.set_xlabel("step")
    if ylabel:
        axes.set_ylabel(ylabel)
    shorten(axes)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", **legend)


def shorten(axes: Any) -> None:
    """Leaves out of names what they all have in common."""
    for line in axes.get_lines():
        line.set_label(short(line.get_label()))


def short(name: str) -> str:
    """A name without what says nothing in a picture."""
    for long, brief in _SHORT:
        name = name.replace(long, brief)
    return name


def limit(axes: Any, value: float, words: str) -> None:
    """A line at the limit of a rule."""
    axes.axhline(value, label=words, **LIMIT)


# ---- losses


def losses(trial: Trial, figure: Any, title: str, **view: Any) -> None:
    """The losses, as `trial.plot()` shows them."""
    axes = trial.plot(ax=figure.add_subplot())
    axes.set(**view)
    finish(axes, None, title, "loss")


def rounds(trial: Trial, figure: Any, title: str) -> None:
    """Mean losses of the evaluations, and of the training before each."""
    axes = figure.add_subplot()
    name = "CrossEntropyLoss_output_0"
    by_mode = {each.mode: each for each in course(trial, name, modes.GLOBAL, None)}
    training, evaluation = by_mode[modes.TRAIN], by_mode[modes.EVAL]
    begins = np.flatnonzero(np.diff(evaluation.steps, prepend=-2) > 1)
    starts = evaluation.steps[begins]
    validated = [each.mean() for each in np.split(evaluation.values, begins[1:])]
    places = np.searchsorted(training.steps, starts)
    trained = [each.mean() for each in np.split(training.values, places)[: len(starts)]]
    axes.plot(training.steps, training.values, linewidth=0.8, alpha=0.35)
    axes.plot(starts, trained, "o-", color="C0", markersize=3, label="training, mean of a round")
    axes.plot(starts, validated, "s--", color="C1", markersize=3, label="evaluation, mean")
    if wants_log([training.values]):
        axes.set_yscale("log")
    finish(axes, trial, title, "loss")


def compared_runs(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    other = create_trial(trial.path + OTHER)
    for name, run, style in (("the other run", other, "-"), ("this run", trial, "--")):
        steps, values = run.tensor("CrossEntropyLoss_output_0").series()
        axes.plot(steps, values, style, linewidth=1.3, label=f"loss of {name}")
    finish(axes, trial, "Two runs are equal up to step 120, where one has another learning rate")


# ---- layers


def layers(
    trial: Trial,
    figure: Any,
    tensors: str,
    reduction: str,
    title: str,
    limits: dict[float, str] | None = None,
    **legend: Any,
) -> None:
    """A reduction of layers, as `trial.plot` shows it."""
    axes = trial.plot(tensors, reduction=reduction, ax=figure.add_subplot())
    for value, words in (limits or {}).items():
        limit(axes, value, words)
    # Once for the whole plot, whatever tensor a finding is about.
    for line in [line for line in axes.get_lines() if ", step " in line.get_label()]:
        line.remove()
    finish(axes, trial, title, **legend)


def first_of_a_step(trial: Trial, figure: Any) -> None:
    axes = trial.plot(".", reduction="nans", kind="heat", ax=figure.add_subplot())
    axes.set_xlim(62.5, 72.5)
    axes.grid(visible=False)
    finish(axes, trial, "NaN spreads from one input: tensors in the order of computation",
           loc="center left", frameon=True, framealpha=0.9)  # fmt: skip
    axes.set_yticklabels([short(text.get_text()) for text in axes.get_yticklabels()])


def zeros(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    names = trial.tensor_names(collection="weights")
    for place, name in enumerate(names):
        tensor = trial.tensor(name)
        steps, counts = tensor.series("zeros")
        size = np.prod(tensor.shape(int(steps[0])))
        axes.plot(steps, 100 * counts / size, linewidth=6 - 2 * place, alpha=0.7, label=name)
    limit(axes, 100, "threshold")
    axes.set_ylim(0, 110)
    finish(axes, trial, "All weights begin at zero, and stay there", "percent of zeros", loc=4)


def relative_norms(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    for name in trial.tensor_names(collection="weights"):
        steps, values = trial.tensor(name).series("l2")
        axes.plot(steps, values / values[0], "o-", markersize=3, label=name)
    title = "The layers fc0 and fc1 get no gradient, and do not move"
    finish(axes, trial, title, "l2, relative to the first")


def changes(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    for name in trial.tensor_names(collection="weights"):
        steps, values = trial.tensor(name).series("l2")
        axes.plot(steps[1:], np.abs(np.diff(values)), "o-", markersize=3, label=name)
    title = "The learning rate is zero from step 65 on: weights stay as they are"
    finish(axes, trial, title, "change of l2 since\nthe saved step before")


def all_gradients(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    series = [trial.tensor(name).series("l2") for name in trial.tensor_names(regex="^gradient/")]
    steps, norms = series[0][0], np.sqrt(sum(values**2 for _, values in series))
    axes.plot(steps, norms, linewidth=1.2, label="norm of all gradients")
    limits = SpikeLimits(window=100, factor=8.0, min_history=20, floor=0.2).add("", norms)
    axes.plot(steps, limits, label="the most that the steps before allow", **LIMIT)
    axes.set_yscale("log")
    finish(axes, trial, "One batch has samples that are a hundred times too large", loc=2)


def update_ratios(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    for name in trial.tensor_names(collection="weights"):
        values = {
            step: each.astype(np.float64) for step, each in trial.tensor(name).values().items()
        }
        ratios = [
            np.linalg.norm(values[after] - values[before]) / np.linalg.norm(values[before])
            for before, after in pairwise(values)
        ]
        axes.plot(list(values)[1:], ratios, linewidth=1.2, label=name)
    limit(axes, 1e-8, "small_threshold")
    axes.set_yscale("symlog", linthresh=1e-9)
    axes.set_ylim(bottom=-5e-10)
    title = "From step 65 on the learning rate is a thousand million times smaller"
    finish(axes, trial, title, "size of an update,\nrelative to the weight")


def ranks(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    name = "DistributedDataParallel_module.fc1.weight"
    for worker, style in zip(trial.workers(), ("o-", "s--"), strict=True):
        steps, values = trial.tensor(name).series("l2", worker=worker)
        axes.plot(steps, values, style, markersize=3, label=f"fc1.weight of {worker}")
    finish(axes, trial, "Rank 1 takes a layer from an old copy at step 60", "l2")


# ---- units, data and classes


def dead_units(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    for name in trial.tensor_names(regex="^act"):
        values = trial.tensor(name).values()
        dead = [100 * np.mean((each > 0).mean(axis=0) < 0.01) for each in values.values()]
        axes.plot(list(values), dead, "o-", markersize=3, label=name)
    limit(axes, 50, "threshold_layer")
    title = "A bad update at step 65 pushes all biases of a layer down"
    finish(axes, trial, title, "percent of dead units", loc=2)


def saturated_units(trial: Trial, figure: Any) -> None:
    axes = trial.plot("act0_input_0", step=[20, 50, 60, 70, 80, 100], ax=figure.add_subplot())
    low, high = -23.0, 16.99999
    axes.axvspan(low, high, color="#888888", alpha=0.35, zorder=0, linewidth=0)
    axes.set_title("Inputs of the sigmoids of act0; grey: where a sigmoid is not flat", loc="left",
                   fontsize="medium", fontweight="bold")  # fmt: skip
    axes.set_xlabel("value")


def channel_means(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    values = trial.tensor("Cnn_input_0").values(mode=modes.TRAIN)
    images = np.cumsum([len(each) for each in values.values()])
    for channel in range(3):
        sums = np.cumsum([each[:, channel].mean(axis=(1, 2)).sum() for each in values.values()])
        style = ("o-", "s--", "^:")[channel]
        axes.plot(images, sums / images, style, markersize=3, label=f"channel {channel}")
    limit(axes, 0.2, "threshold_mean")
    axes.axvline(500, color="#b5179e", linestyle=(0, (4, 3)), label="judged: threshold_samples")
    axes.set_ylim(0, 1)
    finish(axes, None, "Images have values from 0 to 1", "mean so far", loc=2)
    axes.set_xlabel("images")


def labels_so_far(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    values = trial.tensor("CrossEntropyLoss_input_1").values()
    counts = np.cumsum([np.bincount(each, minlength=4) for each in values.values()], axis=0)
    for number in range(4):
        axes.plot(list(values), counts[:, number], "o-", markersize=3, label=f"class {number}")
    axes.plot(list(values), counts.max(axis=1) / 10, label="most frequent / threshold_imbalance",
              **LIMIT)  # fmt: skip
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=0)
    finish(axes, trial, "Of class 0 there is one sample in twenty-five", "labels so far", loc=4)


def confusion(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    labels = trial.tensor("CrossEntropyLoss_input_1").values(mode=modes.EVAL)
    scores = trial.tensor("CrossEntropyLoss_input_0").values(mode=modes.EVAL)
    last = list(labels)[-8:]
    matrix = np.zeros((6, 6), int)
    for step in last:
        np.add.at(matrix, (labels[step], scores[step].argmax(axis=1)), 1)
    axes.imshow(np.ma.masked_equal(matrix, 0), cmap="Blues", vmin=0, aspect="auto")
    for row in range(6):
        for column in range(6):
            dark = matrix[row, column] > matrix.max() / 2
            axes.text(column, row, matrix[row, column], ha="center", va="center",
                      color="white" if dark else "black")  # fmt: skip
    axes.grid(visible=False)
    finish(axes, None, "The last evaluation: class 3 is taken for class 2", "label")
    axes.set_xlabel("prediction")


def padding(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    tensor = trial.tensor("embedding_input_0")
    steps, counts = tensor.series("zeros")
    size = np.prod(tensor.shape(int(steps[0])))
    axes.plot(steps, 100 * counts / size, "o-", markersize=3, label="token 0 in embedding_input_0")
    limit(axes, 50, "token_thresholds_percent")
    axes.set_ylim(0, 100)
    title = "Sentences of at most 16 words are padded to 48"
    finish(axes, trial, title, "percent of the tokens", loc=4)


def times(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    table = trial.to_arrow(["step", "time"])
    steps, first = np.unique(table["step"].to_numpy(), return_index=True)
    seconds = table["time"].to_numpy()[first]
    seconds = seconds - seconds[0]
    axes.plot(seconds, steps, ".-", markersize=3, linewidth=1, label="saved steps")
    at = int(np.diff(seconds).argmax())
    axes.axvspan(seconds[at], seconds[at] + 4, color="#888888", alpha=0.3, linewidth=0,
                 label="threshold: 4 seconds")  # fmt: skip
    axes.axvline(seconds[at] + 4, color="#b5179e", linestyle=(0, (4, 3)), label="found")
    finish(axes, None, f"Training hangs behind step {steps[at]}", "step", loc=2)
    axes.set_xlabel("seconds")


# ---- XGBoost


def importances(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    series = {
        name: trial.tensor(name).series()
        for name in trial.tensor_names(regex="^feature_importance/weight/")
    }
    steps = next(iter(series.values()))[0]
    known = {name: dict(zip(*each, strict=True)) for name, each in series.items()}
    table = np.array([[each.get(step, 0.0) for step in steps] for each in known.values()])
    shares = table / table.sum(axis=0)
    for name, share in zip(known, shares, strict=True):
        axes.plot(steps, share, linewidth=1.5, label=name.rpartition("/")[2])
    largest = np.sort(shares, axis=0)[-3:].sum(axis=0)
    axes.plot(steps, largest, color="black", linewidth=2, label="the 3 largest")
    limit(axes, 0.8, "threshold")
    axes.set_ylim(0, 1.05)
    title = "The model rests on two of six features"
    finish(axes, trial, title, "share of the splits", loc="center right", ncols=2)


def depths(trial: Trial, figure: Any) -> None:
    axes = figure.add_subplot()
    steps, values = trial.tensor("trees/Node").series("max")
    axes.plot(steps, np.log2(np.maximum(values, 1)), "o-", markersize=3,
              label="log2 of the largest node id")  # fmt: skip
    limit(axes, 5, "depth")
    axes.set_ylim(0, 7)
    finish(axes, trial, "max_depth is 6: trees of the first rounds are deep", "depth", loc=4)


def report(trial: Trial, figure: Any) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
    trial.plot(ax=left)
    finish(left, None, "Metrics", "logloss")
    left.set_xlabel("round")
    names = trial.tensor_names(regex="^feature_importance/gain/")
    values = [float(trial.tensor(name).series()[1][-1]) for name in names]
    right.barh([name.rpartition("/")[2] for name in names], values)
    right.invert_yaxis()
    finish(right, None, "Importance of the features")
    right.set_xlabel("gain")


DRAWINGS: dict[str, Callable[[Trial, Any], None]] = {
    "AllZero": zeros,
    "CheckInputImages": channel_means,
    "ClassImbalance": labels_so_far,
    "Confusion": confusion,
    "CreateXgboostReport": report,
    "DeadRelu": dead_units,
    "ExplodingTensor": partial(
        layers, tensors="gradient/.*weight", reduction="l2",
        title="The learning rate is far too high from step 40 on: gradients overflow",
    ),
    "FeatureImportanceOverweight": importances,
    "FrozenParameter": relative_norms,
    "GradientSpike": all_gradients,
    "LossNotDecreasing": partial(losses, title="Labels were shuffled: there is nothing to learn"),
    "LossSpike": partial(
        losses, title="At step 120 the learning rate becomes a thousand times larger",
        xlim=(80, 132),
    ),
    "NLPSequenceRatio": padding,
    "NonFinite": first_of_a_step,
    "Overfit": partial(rounds, title="Training sees the same 24 samples again and again"),
    "Overtraining": partial(rounds, title="What can be learned is learned after about 80 steps"),
    "PoorWeightInitialization": partial(
        layers, tensors="act._input_0", reduction="variance",
        title="Weights begin thirty times too large: variance of what ReLUs get",
    ),
    "ReplicaDivergence": ranks,
    "SaturatedActivation": saturated_units,
    "SimilarAcrossRuns": compared_runs,
    "StalledTrainingRule": times,
    "TensorVariance": partial(
        layers, tensors="weight$", reduction="variance", limits={0.04: "max_threshold"},
        title="From step 100 on the learning rate is twelve times larger",
    ),
    "TreeDepth": depths,
    "UnchangedTensor": changes,
    "VanishingGradient": partial(
        layers, tensors="gradient/.*weight", reduction="abs_mean", limits={1e-7: "threshold"},
        title="Nine layers of sigmoids: hardly any gradient reaches the first",
        loc="center left", bbox_to_anchor=(1, 0.5),
    ),
    "WeightUpdateRatio": update_ratios,
}  # fmt: skip
