"""CreateXgboostReport: the page, compared with the numbers it was made of."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.rules.tensor_runs import GLOBAL, Run, batch, collections, outcome, write

from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules import invoke_rule, run_rules
from smdebug.rules.builtin.create_xgboost_report import CreateXgboostReport
from smdebug.rules.html.xgboost_page import best_round
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing.runs import make_run
from smdebug.trials.create import create_trial

if TYPE_CHECKING:
    from pathlib import Path

RULE = "CreateXgboostReport"
KEY = "reports/xgboost_report.html"
VOID = {"meta"}


class Reader(HTMLParser):
    """Reads a page as a browser would, and keeps what a person sees."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)


def read(content: str) -> Reader:
    """A page that stands for itself: nothing is loaded, nothing runs."""
    reader = Reader()
    reader.feed(content)
    assert reader.open == []
    for tag, attributes in reader.elements:
        assert tag not in ("script", "link", "img", "iframe", "object", "embed", "use", "image")
        assert not {"src", "href", "xlink:href", "onload", "onclick"} & attributes.keys()
    assert "url(" not in content
    assert "@import" not in content
    assert "http" not in content
    for text in re.findall(r"<svg.*?</svg>", content, re.DOTALL):
        root = ElementTree.fromstring(text)
        assert "nan" not in " ".join(
            value for each in root.iter() for value in each.attrib.values()
        )
    return reader


def report_of(path: Path, run: Run, **other: Any) -> Reader:
    """Makes the report of a run."""
    found = outcome(write(path, run, modes=dict.fromkeys(run, GLOBAL), **other), RULE)
    assert (found.status, found.findings) == ("passed", [])
    return read((path / KEY).read_text(encoding="utf-8"))


def metrics(step: int, **values: float) -> dict[str, Any]:
    return {name.replace("_", "-"): np.array([value]) for name, value in values.items()}


def binary(rounds: int = 3, rows: int = 200, features: int = 4) -> Run:
    random = np.random.default_rng(rounds)
    labels = random.integers(0, 2, rows).astype(np.float32)
    scores = np.clip(labels * 0.3 + random.random(rows) * 0.7, 0, 1).astype(np.float32)
    run: Run = {}
    for step in range(rounds):
        run[step] = {
            **metrics(step, train_auc=0.5 + step / 2000, validation_auc=0.5 + (step % 7) / 100),
            "labels": labels,
            "predictions": scores,
            "hyperparameters/objective": np.array(["binary:logistic"]),
            "hyperparameters/eta": np.array([0.3]),
        }
        for number in range(features):
            share = 2 * (features - number) / (features * (features + 1))
            run[step][f"feature_importance/weight/f{number}"] = np.array([share])
            run[step][f"feature_importance/total_gain/f{number}"] = np.array([1 / features])
            run[step][f"average_shap/f{number}"] = np.array([(-1) ** number * share])
        run[step]["average_shap/bias"] = np.array([0.1])
    return run


def facts(reader: Reader) -> str:
    return " ".join(" ".join(reader.texts).split())


def test_a_classifier_of_two_classes(tmp_path: Path) -> None:
    run = binary(rounds=12)
    shown = facts(report_of(tmp_path, run))
    labels, scores = run[0]["labels"], run[0]["predictions"]
    for heading in ("Metrics", "Predictions", "Features", "Hyperparameters"):
        assert heading in shown
    assert "Rounds 12" in shown
    # 0.56 in round 6, the first of the largest.
    assert "Best validation-auc 0.56 in round 6" in shown
    assert "Best on validation: 0.56 in round 6." in shown
    assert "auc train 0.5 0.5055 0.5055 11" in shown
    assert "auc validation 0.5 0.54 0.56 6" in shown
    assert f"Accuracy {np.mean((scores > 0.5) == labels):.1%}" in shown
    assert "Rows 200" in shown
    assert "Features 4 in the trees" in shown
    for label in (0, 1):
        mine = labels == label
        for said in (0, 1):
            count = int(((scores > 0.5) == said)[mine].sum())
            share = count / int(mine.sum())
            assert f"label {label}, predicted {said}: {count} ({share:.1%})" in shown
    assert "predicted probability of class 1" in shown
    assert "Importance by weight" in shown
    assert "Importance by total gain" in shown
    assert "Mean SHAP value" in shown
    assert "f1: -0.3" in shown
    assert "bias" not in shown
    assert "eta 0.3" in shown
    assert "objective binary:logistic" in shown


def test_a_classifier_of_several_classes(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    labels = random.integers(0, 4, 500)
    scores = random.random((500, 4)) + 0.8 * np.eye(4)[labels]
    scores = (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)
    tensors = {**metrics(0, validation_mlogloss=0.5), "labels": labels, "predictions": scores}
    shown = facts(report_of(tmp_path, {0: tensors}))
    median = np.quantile(scores[labels == 2, 2].astype(np.float64), 0.5)
    assert f"class 2: {(labels == 2).sum()} samples" in shown
    assert f"50%: {median:.4g}" in shown
    assert f"Accuracy {(scores.argmax(axis=1) == labels).mean():.1%}" in shown


def test_predictions_that_are_classes_say_nothing_of_how_sure_the_model_is(tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], 20)
    tensors = {**metrics(0, train_merror=0.1), "labels": labels, "predictions": labels * 1.0}
    shown = facts(report_of(tmp_path, {0: tensors}))
    assert "Confusion matrix" in shown
    assert "How sure" not in shown
    assert "Predictions by label" not in shown


def test_many_classes(tmp_path: Path) -> None:
    labels = np.concatenate([np.repeat(np.arange(20), 3), np.arange(20, 45)])
    tensors = {**metrics(0, train_merror=0.1), "labels": labels, "predictions": labels * 1.0}
    shown = facts(report_of(tmp_path, {0: tensors}))
    assert "The 20 most frequent of 45 classes." in shown
    assert "label 19, predicted 19: 3" in shown
    assert "label 20," not in shown


def test_a_regression(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    labels = random.normal(50, 20, 400)
    errors = random.normal(1.5, 3, 400)
    tensors = {
        **metrics(0, validation_rmse=3.2, train_rmse=3.0),
        "labels": labels,
        "predictions": labels - errors,
        "hyperparameters/objective": np.array(["reg:squarederror"]),
    }
    shown = facts(report_of(tmp_path, {0: tensors}))
    assert "label minus prediction" in shown
    assert "Confusion" not in shown
    assert "Accuracy" not in shown
    assert (
        f"Mean {errors.mean():.4g}, root of the mean square {np.sqrt((errors**2).mean()):.4g}"
        in shown
    )


def test_whole_labels_of_a_regression_are_no_classes(tmp_path: Path) -> None:
    tensors = {
        **metrics(0, train_rmse=1.0),
        "labels": np.array([3.0, 4.0]),
        "predictions": np.array([3.0, 4.0]),
        "hyperparameters/objective": np.array(["count:poisson"]),
    }
    shown = facts(report_of(tmp_path, {0: tensors}))
    assert "Errors" in shown
    assert "Confusion" not in shown


def test_names_are_only_text(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    tensors = {
        "train-<b>auc": np.array([0.5]),
        f"feature_importance/weight/{evil}": np.array([1.0]),
        f"average_shap/{evil}": np.array([1.0]),
        f"hyperparameters/{evil}": np.array([f"</td>{evil}"]),
    }
    reader = report_of(tmp_path, {0: tensors})
    assert "script" not in {tag for tag, _ in reader.elements}
    assert evil in reader.texts
    assert f"</td>{evil}" in reader.texts


@pytest.mark.parametrize("rounds", [1, 2, 1000])
@pytest.mark.parametrize("features", [2, 20, 21, 500])
def test_few_and_many(tmp_path: Path, rounds: int, features: int) -> None:
    run = binary(1, features=features)
    many = {step: metrics(step, train_auc=0.5 + step / 3000) for step in range(rounds)}
    many[rounds - 1] |= run[0]
    shown = facts(report_of(tmp_path, many))
    assert f"Rounds {rounds:,}" in shown
    assert (f"The 20 largest of {features} features." in shown) == (features > 20)
    # Of two importances and SHAP.
    assert len(re.findall(r"\bf\d+: ", shown)) == 3 * min(features, 20)


def test_what_was_not_saved_is_left_out(tmp_path: Path) -> None:
    shown = facts(
        report_of(tmp_path, {0: metrics(0, train_auc=0.5), 10: metrics(10, train_auc=np.nan)})
    )
    assert "Rounds 11 2 of them saved" in shown
    for heading in ("Predictions", "Features", "Hyperparameters"):
        assert heading not in shown


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_both_formats(tmp_path: Path, format: str) -> None:
    shown = facts(report_of(tmp_path, binary(), format=format))
    assert "objective binary:logistic" in shown
    assert "Confusion matrix" in shown


def test_the_data_of_all_workers(tmp_path: Path) -> None:
    run = {f"worker_{number}": binary(2, rows=100 + number) for number in range(2)}
    path = write(tmp_path, run, modes={0: GLOBAL, 1: GLOBAL})
    run_rules(path, [RULE])
    shown = facts(read((tmp_path / KEY).read_text(encoding="utf-8")))
    assert "Rows 201" in shown
    assert "eta 0.3" in shown


def test_in_one_piece_and_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, binary(20))
    run_rules(path, [RULE])
    whole = (tmp_path / KEY).read_bytes()
    (tmp_path / KEY).unlink()
    monkeypatch.setattr("smdebug.rules.rule_frames.MAX_ROWS", 1)
    run_rules(path, [RULE])
    assert (tmp_path / KEY).read_bytes() == whole


def test_a_run_that_is_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore("memory://place")
    monkeypatch.setattr("smdebug.trials.trial.open_store", lambda path: store)
    data = {("worker_0", step): batch(step, tensors) for step, tensors in binary().items()}
    make_run(store, [0, 1, 2], data=data, collections=collections())
    rule = CreateXgboostReport(create_trial("memory://place"))
    run_rules(rule.base_trial, [rule])
    read(bytes(store.read(KEY)).decode())
    assert rule.written_to == f"memory://place/{KEY}"


def test_written_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "run", binary())
    target = tmp_path / "new" / "folder" / "page.html"
    rule = CreateXgboostReport(create_trial(path), str(target))
    run_rules(rule.base_trial, [rule])
    read(target.read_text(encoding="utf-8"))
    assert rule.written_to == str(target)
    assert not (tmp_path / "run" / KEY).exists()
    monkeypatch.chdir(tmp_path)
    run_rules(path, [f"{RULE}:report_path=here.html"])
    assert (tmp_path / "here.html").is_file()


@pytest.mark.parametrize("given", ["", 7, "folder/"])
def test_bad_parameters(given: Any) -> None:
    with pytest.raises(SMDebugValueError, match="report_path"):
        CreateXgboostReport(None, given)


def test_needs() -> None:
    names = [need.collection for need in CreateXgboostReport(None).needs()]
    assert names == [
        "metrics", "labels", "predictions", "feature_importance", "hyperparameters",
    ]  # fmt: skip


def test_could_not_run(tmp_path: Path) -> None:
    path = write(tmp_path, {0: {"labels": np.arange(3), "predictions": np.arange(3)}})
    found = outcome(path, RULE)
    assert found.status == "could not run"
    assert "no tensors of the collection metrics" in found.message
    assert not (tmp_path / KEY).exists()
    with pytest.raises(InsufficientInformationForRuleInvocation, match=RULE):
        invoke_rule(CreateXgboostReport(create_trial(path)))


@pytest.mark.parametrize(
    ("metric", "best"),
    [
        ("auc", 2),
        ("aucpr", 2),
        ("map@3-", 2),
        ("ndcg", 2),
        ("logloss", 1),
        ("error@0.7", 1),
        ("rmse", 1),
    ],
)
def test_the_best_round(metric: str, best: int) -> None:
    values = np.array([0.5, 0.1, 0.9, np.nan, 0.9, 0.1])
    assert best_round(metric, np.arange(6.0), values) == (best, values[best])
    assert best_round(metric, np.arange(1.0), np.array([np.inf])) is None
