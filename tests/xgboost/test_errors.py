"""Bad input: a clear error where it is given, or one warning, and boosting as if nothing was."""

from __future__ import annotations

import datetime
import decimal
import logging
import math
import os
import pickle
import re
import string
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.xgboost import data
from xgboost.callback import TrainingCallback

import smdebug.xgboost as smd
from smdebug import ReductionConfig
from smdebug.exceptions import (
    InvalidCollectionConfiguration,
    SMDebugError,
    SMDebugRuntimeError,
    SMDebugTypeError,
    SMDebugValueError,
    WriteFailed,
)
from smdebug.hook.module_api import current_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.trials import Trial

EVERY = smd.SaveConfig(save_interval=1)
# What a hook of this framework can save besides metrics.
ALL = [
    "hyperparameters", "losses", "labels", "predictions", "feature_importance", "average_shap",
    "full_shap", "trees",
]  # fmt: skip
# One tensor of each.
ONE_OF = {
    "hyperparameters": "hyperparameters/eta", "losses": "train-logloss", "labels": "labels",
    "predictions": "predictions", "feature_importance": "feature_importance/gain/f0",
    "average_shap": "average_shap/f0", "full_shap": "full_shap", "trees": "trees/Gain",
}  # fmt: skip
ROUNDS = 30
# It says nothing of empty data sets and the like, which would be warnings of XGBoost's.
QUIET = {**data.BINARY, "verbosity": 0}
NOT_ROOT = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 0)() == 0, reason="whoever may do everything is never refused"
)


def matrix(rows: int = 60, **options: Any) -> Any:
    return data.matrix(rows, **options)


def hook_for_all(out_dir: Path, **options: Any) -> smd.Hook:
    """A hook that is given everything and saves everything at every round."""
    whole: dict[str, Any] = {
        "save_config": EVERY, "include_collections": ALL, "hyperparameters": {"eta": 0.3},
        "train_data": matrix(), "validation_data": matrix(),
    }  # fmt: skip
    return smd.Hook(out_dir, **{**whole, **options})


def saved_by(hook: smd.Hook, rounds: int = ROUNDS, **options: Any) -> Trial:
    """Trains, with and without the hook: the model is the same to the byte; opens the run."""
    options.setdefault("params", QUIET)
    options.setdefault("data", matrix())
    model = data.train(hook, rounds, **options)
    assert model.save_raw() == data.train(None, rounds, **options).save_raw()
    hook.close()
    return smd.create_trial(hook.out_dir)


def assert_saved(trial: Trial, names: list[str], rounds: int = ROUNDS) -> None:
    """Of all collections exactly these were saved, at all rounds."""
    found = {name: trial.tensor(one).steps() if trial.has_tensor(one) else []
             for name, one in ONE_OF.items()}  # fmt: skip
    every = list(range(rounds))
    assert found == {name: every if name in names else [] for name in ONE_OF}


def messages(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """What the hook said from this level on."""
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno >= level and each.name.startswith("smdebug")
    ]


# ---- what the constructor refuses

MATRIX_OR_PATH = "train_data must be an xgboost.DMatrix or a tuple of a path and a content type"


@pytest.mark.parametrize("key", ["train_data", "validation_data"])
@pytest.mark.parametrize(
    ("value", "fragments"),
    [
        (np.ones((3, 2)), ["ndarray", "xgboost.DMatrix(data, label)"]),
        (pd.DataFrame({"a": [1.0]}), ["DataFrame", "xgboost.DMatrix(data, label)"]),
        ([[1.0, 2.0], [3.0, 4.0]], ["list", "xgboost.DMatrix(data, label)"]),
        ([1, 2], ["list", "xgboost.DMatrix(data, label)"]),
        ("rows.csv", ["rows.csv", '"csv"']),
        (Path("rows.csv"), ["rows.csv", '"csv"']),
        ((), ["()"]),
        (("rows.csv",), ["('rows.csv',)"]),
        (("rows.csv", "csv", 1), ["('rows.csv', 'csv', 1)"]),
        ((None, "csv"), ["None"]),
        ((b"rows.csv", "csv"), ["b'rows.csv'"]),
        ((5, "csv"), ["5"]),
        (5, ["int"]),
        (True, ["bool"]),
        ({}, ["dict"]),
        ({"a": 1, "b": 2}, ["dict"]),
        (print, ["builtin_function_or_method"]),
    ],
    ids=repr,
)
def test_data_of_the_wrong_type(tmp_path: Path, key: str, value: Any, fragments: list[str]) -> None:
    given: dict[str, Any] = {key: value}
    with pytest.raises(SMDebugTypeError) as caught:
        smd.Hook(tmp_path / "run", **given)
    message = str(caught.value)
    assert message.startswith(MATRIX_OR_PATH.replace("train_data", key))
    assert [each for each in fragments if each not in message] == []
    assert current_hook() is None
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "content_type",
    ["CSV", "text/csv; charset=utf-8", "parquet", "application/x-parquet", "", 5, True, b"csv",
     ["csv"], {"csv"}, {}, ("csv",), ...],
    ids=str,
)  # fmt: skip
def test_a_wrong_content_type(tmp_path: Path, content_type: Any) -> None:
    (tmp_path / "rows").write_text("1,2\n")
    with pytest.raises(SMDebugValueError) as caught:
        smd.Hook(tmp_path / "run", train_data=(tmp_path / "rows", content_type))
    assert str(caught.value) == (
        f"train_data: unknown content type {content_type!r}. Choose from csv, text/csv, libsvm, "
        "text/libsvm, text/x-libsvm, or None for libsvm"
    )


@pytest.mark.parametrize("path", ["none.csv", "none/rows.csv", "x" * 300, "a\0b"])
def test_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SMDebugValueError) as caught:
        smd.Hook(tmp_path / "run", validation_data=(path, "csv"))
    assert str(caught.value).startswith("validation_data: ")
    assert path[:100] in str(caught.value) or repr(path)[1:-1] in str(caught.value)


def test_home_directory_of_an_unknown_user(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match=r"train_data.*~nobody-of-this-name"):
        smd.Hook(tmp_path / "run", train_data=("~nobody-of-this-name/rows.csv", "csv"))


def test_empty_path(tmp_path: Path) -> None:
    # It would be the present directory, and whatever is in there.
    with pytest.raises(SMDebugError, match=r"train_data.*got (a tuple that begins with )?''"):
        smd.Hook(tmp_path / "run", train_data=("", "csv"))


def test_url_is_not_a_path(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match=r"train_data.*s3://bucket/rows.csv"):
        smd.Hook(tmp_path / "run", train_data=("s3://bucket/rows.csv", "csv"))


JUNK = bytes(range(256)) * 20
FILES: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "csv", "contains no rows"),
    "blank": (b"\n\n  \n", "csv", "contains no rows"),
    "empty libsvm": (b"", "libsvm", "contains no rows"),
    "comments only": (b"# one\n# two\n", "libsvm", "contains no rows"),
    "header": (b"label,height,width\n1,2,3\n", "csv", "'label,height,width'"),
    "header of numpy": (b"# label,height\n1,2\n", "csv", "'# label,height'"),
    "quoted header": (b'"label","height"\n1,2\n', "csv", "label"),
    "quoted numbers": (b'"1","2"\n', "csv", "1"),
    "text in a column": (b"1,2,setosa\n", "csv", "'1,2,setosa'"),
    "one column": (b"1\n0\n", "csv", "'1'"),
    "semicolons": (b"1;2;3\n", "csv", "'1;2;3'"),
    "tabs": (b"1\t2\t3\n", "csv", r"'1\t2\t3'"),
    "spaces": (b"1 2 3\n", "csv", "'1 2 3'"),
    "decimal commas": (b"1;2,5\n", "csv", "'1;2,5'"),
    "byte order mark": (b"\xef\xbb\xbf1,2\n", "csv", "1,2"),
    "utf-16": ("1,2\n".encode("utf-16"), "csv", "1"),
    "libsvm for csv": (b"1 0:2 1:3\n", "csv", "'1 0:2 1:3'"),
    "csv for libsvm": (b"1,2,3\n", "libsvm", "'1,2,3'"),
    "indices only": (b"1 0 2\n", "libsvm", "'1 0 2'"),
    "words for libsvm": (b"label a:1\n", "libsvm", "'label a:1'"),
    "json": (b'{"label": 1}\n', "libsvm", "label"),
    "junk": (JUNK, "csv", "got "),
    "junk for libsvm": (JUNK, "libsvm", "got "),
    "compressed": (b"\x1f\x8b\x08\x00" + JUNK, "csv", "got "),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_something_else(tmp_path: Path, name: str) -> None:
    content, content_type, got = FILES[name]
    path = tmp_path / "rows"
    path.write_bytes(content)
    with pytest.raises(SMDebugValueError) as caught:
        smd.Hook(tmp_path / "run", train_data=(path, content_type))
    message = str(caught.value)
    # Which argument, which file, what was expected, what was found.
    assert message.startswith("train_data: ")
    assert [each for each in (str(path), content_type, got) if each not in message] == []
    assert "\n" not in message
    assert len(message) < 500
    assert current_hook() is None


def test_a_long_first_line_is_cut_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text(",".join(f"column_{number}" for number in range(10_000)))
    with pytest.raises(SMDebugValueError, match="column_0") as caught:
        smd.Hook(tmp_path / "run", train_data=(path, "csv"))
    assert len(str(caught.value)) < 600


def test_a_header_in_any_file_of_a_directory(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "part-0").write_text("1,2,3\n")
    (folder / "part-1").write_text("label,a,b\n1,2,3\n")
    with pytest.raises(SMDebugValueError, match=r"part-1.*|'label,a,b'.*part-1"):
        smd.Hook(tmp_path / "run", train_data=(folder, "csv"))


@pytest.mark.parametrize("inside", [[], ["folder/"], ["empty"]], ids=str)
def test_a_directory_without_rows(tmp_path: Path, inside: list[str]) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for name in inside:
        if name.endswith("/"):
            (folder / name).mkdir()
        else:
            (folder / name).write_text("")
    with pytest.raises(SMDebugValueError, match=f"train_data.*{re.escape(str(folder))}"):
        smd.Hook(tmp_path / "run", train_data=(folder, "csv"))


@NOT_ROOT
def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("1,2\n")
    path.chmod(0)
    with pytest.raises(SMDebugValueError, match=f"train_data.*{re.escape(str(path))}"):
        smd.Hook(tmp_path / "run", train_data=(path, "csv"))


@pytest.mark.parametrize("value", [0, -1, "x", "", True, False, None, math.nan, math.inf, [1], 0.5])
def test_invalid_shap_samples(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SMDebugValueError) as caught:
        smd.Hook(tmp_path / "run", shap_samples=value)
    assert str(caught.value) == f"shap_samples must be a positive integer, got {value!r}"


@pytest.mark.parametrize("value", [5, "eta=1", [("eta", 1)], {"eta"}, print, b"", True])
def test_hyperparameters_that_are_no_dict(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SMDebugError, match="hyperparameters must be a dict") as caught:
        smd.Hook(tmp_path / "run", hyperparameters=value)
    assert isinstance(caught.value, ValueError | TypeError)
    assert str(caught.value).endswith(repr(value))


@pytest.mark.parametrize(
    ("options", "kind", "fragments"),
    [
        ({"save_config": 5}, SMDebugTypeError, ["save_config", "5"]),
        ({"save_config": {"save_interval": 0}}, SMDebugValueError, ["save_interval", "0"]),
        ({"reduction_config": {"reductions": ["mean"]}}, SMDebugTypeError, ["reduction_config"]),
        ({"include_collections": 5}, SMDebugTypeError, ["include_collections", "5"]),
        ({"include_regex": "("}, SMDebugValueError, ["include_regex", "("]),
        ({"include_workers": "some"}, SMDebugValueError, ["include_workers", "one, all", "some"]),
        ({"format": "v3"}, SMDebugValueError, ["format", "v1, v2", "v3"]),
        ({"on_error": "ignore"}, SMDebugValueError, ["on_error", "warn, raise", "ignore"]),
        ({"rules": ["Nonsense"]}, SMDebugValueError, ["Nonsense", "rule"]),
        ({"rules": ["TreeDepth:size=1"]}, SMDebugError, ["TreeDepth", "size"]),
        ({"on_finding": "stop"}, SMDebugValueError, ["on_finding", "rules"]),
        ({"before_update": True}, SMDebugValueError, ["before_update", "must be False"]),
        (
            {"before_update": True, "rules": ["NonFinite"]},
            SMDebugValueError,
            ["before_update", "must be False", 'on_finding="stop"'],
        ),
    ],
    ids=str,
)
def test_other_invalid_arguments(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception], fragments: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        smd.Hook(tmp_path / "run", **options)
    assert [each for each in fragments if each not in str(caught.value)] == []
    assert current_hook() is None
    assert not (tmp_path / "run").exists()


def test_missing_out_dir() -> None:
    with pytest.raises(SMDebugRuntimeError, match="out_dir is required: a directory or a URL"):
        smd.Hook()


def test_a_directory_with_a_finished_run(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run")
    data.train(hook, 1)
    hook.close()
    smd.del_hook()
    with pytest.raises(
        SMDebugRuntimeError, match=r"already contains a finished run. Use another out_dir"
    ):
        smd.Hook(tmp_path / "run")
    assert current_hook() is None


@pytest.mark.parametrize("name", ["feature_importances", "Trees"])
def test_misspelled_collection(tmp_path: Path, name: str) -> None:
    with pytest.raises(SMDebugValueError, match=f"Unknown collection '{name}'.*Did you mean"):
        smd.Hook(tmp_path / "run", include_collections=[name])


@pytest.mark.parametrize("name", ["shap", "weights"])
def test_a_collection_that_does_not_exist(tmp_path: Path, name: str) -> None:
    hook = smd.Hook(tmp_path / "run", include_collections=[name])
    with pytest.raises(InvalidCollectionConfiguration, match=f"(?s){name}.*include"):
        data.train(hook, 1)
    # Once it is said what it means, all is well.
    hook.get_collection(name).include("trees/Gain")
    data.train(hook, 1)
    hook.close()
    assert smd.create_trial(tmp_path / "run").tensor_names(collection=name) == ["trees/Gain"]


def test_an_empty_collection_that_is_not_even_saved(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "run")
    hook.get_collection("mine")
    with pytest.raises(InvalidCollectionConfiguration, match="mine"):
        data.train(hook, 1)


# ---- what is missing, or does not fit: one warning, and the rest is saved


def test_reduction_config_of_the_hook_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = hook_for_all(tmp_path / "run", reduction_config=ReductionConfig(["mean"], norms=["l2"]))
    trial = saved_by(hook)
    (message,) = messages(caplog)
    assert message.startswith("reduction_config has no effect in a hook for XGBoost")
    assert_saved(trial, ALL)
    for name in ("labels", "predictions", "full_shap", "trees/Gain", "hyperparameters/eta"):
        assert trial.tensor(name).value(3).size
        assert trial.tensor(name).reduction_values(3) == {}


def test_default_reduction_config_causes_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    smd.Hook(tmp_path / "run", reduction_config=ReductionConfig(save_raw_tensor=True))
    assert messages(caplog) == []


LACKING: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "no train_data": (
        {"train_data": None},
        {name: "the hook was given no train_data; give it train_data=xgboost.DMatrix(...)"
         for name in ("average_shap", "full_shap")},
    ),
    "no validation_data": (
        {"validation_data": None},
        {name: "the hook was given no validation_data; give it validation_data=xgboost.DMatrix(...)"
         for name in ("labels", "predictions")},
    ),
    "no hyperparameters": (
        {"hyperparameters": None},
        {"hyperparameters": "the hook was given none; give it hyperparameters=params"},
    ),
    "no labels": (
        {"validation_data": xgboost.DMatrix(data.features(60))},
        {"labels": "validation_data has no labels"},
    ),
    "no rows to validate": (
        {"validation_data": xgboost.DMatrix(np.empty((0, 5)), np.empty(0))},
        {name: "validation_data has no rows" for name in ("labels", "predictions")},
    ),
    "no rows to explain": (
        {"train_data": xgboost.DMatrix(np.empty((0, 5)), np.empty(0))},
        {name: "train_data has no rows" for name in ("average_shap", "full_shap")},
    ),
    "too many features to validate": (
        {"validation_data": xgboost.DMatrix(np.ones((60, 6)), np.ones(60))},
        {"predictions": "validation_data must have the 5 features .*, got 6"},
    ),
    "too few features to explain": (
        {"train_data": xgboost.DMatrix(np.ones((60, 4)), np.ones(60))},
        {name: "train_data must have the 5 features .*, got 4"
         for name in ("average_shap", "full_shap")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LACKING)
def test_missing_inputs_are_logged_once_and_the_rest_is_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    given, expected = LACKING[case]
    trial = saved_by(hook_for_all(tmp_path / "run", **given))
    assert_saved(trial, [name for name in ALL if name not in expected])
    said = messages(caplog)
    assert len(said) == len(expected)
    for (name, reason), message in zip(expected.items(), said, strict=True):
        assert re.fullmatch(f"{name} cannot be saved: {reason}".replace("(...)", r"\(...\)"),
                            message)  # fmt: skip


def test_missing_inputs_are_not_failures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nothing = {"train_data": None, "validation_data": None, "hyperparameters": None}
    hook = hook_for_all(tmp_path / "run", on_error="raise", **nothing)
    trial = saved_by(hook, 5)
    assert_saved(trial, ["losses", "feature_importance", "trees"], 5)
    assert len(messages(caplog)) == 5


def test_two_training_runs_log_it_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = smd.Hook(tmp_path / "run", include_collections=["labels"], save_config=EVERY)
    data.train(hook, 5)
    data.train(hook, 5)
    hook.close()
    assert len(messages(caplog)) == 2


def test_fewer_features_can_be_predicted_as_xgboost_does_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    narrow = xgboost.DMatrix(data.features(60)[:, :3], np.zeros(60))
    trial = saved_by(hook_for_all(tmp_path / "run", validation_data=narrow), 5)
    model = data.train(None, 5, QUIET, data=matrix())
    np.testing.assert_array_equal(trial.tensor("predictions").value(4), model.predict(narrow))
    assert messages(caplog) == []


WIDE = """
    import sys
    import numpy as np, xgboost
    import smdebug.xgboost as smd

    values = np.random.default_rng(0).normal(size=(60, 5))
    matrix = xgboost.DMatrix(values, values[:, 0] > 0)
    columns, classes = int(sys.argv[2]), int(sys.argv[3])
    wide = xgboost.DMatrix(np.random.default_rng(1).normal(size=(400, columns)))
    params = {"nthread": 1, "objective": "binary:logistic"}
    if classes > 1:
        params |= {"objective": "multi:softprob", "num_class": classes}
    hook = smd.Hook(
        sys.argv[1], save_config=smd.SaveConfig(save_interval=1), train_data=wide,
        include_collections=["average_shap", "full_shap"],
    )
    model = xgboost.train(params, matrix, 5, evals=[(matrix, "train")], callbacks=[hook])
    hook.close()
    print(hash(bytes(model.save_raw())) == hash(bytes(xgboost.train(params, matrix, 5).save_raw())))
"""  # fmt: skip


@pytest.mark.parametrize(("columns", "classes"), [(10, 1), (100, 3)])
def test_data_with_too_many_features_does_not_crash_the_process(
    tmp_path: Path, columns: int, classes: int
) -> None:
    # XGBoost itself writes to memory that is not its own in this case: hence a process.
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WIDE), str(tmp_path / "run"), str(columns),
         str(classes)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True"
    assert re.search(f"train_data must have the 5 features .*, got {columns}", done.stderr)
    trial = smd.create_trial(tmp_path / "run")
    assert trial.tensor_names() == ["train-logloss" if classes == 1 else "train-mlogloss"]


NAMES = ["height", "width", "depth", "age", "price"]
OTHERS: dict[str, tuple[list[str] | None, list[str] | None]] = {
    "other names": (NAMES, ["a", "b", "c", "d", "e"]),
    "another order": (NAMES, NAMES[::-1]),
    "names": (NAMES, None),
}


@pytest.mark.parametrize("case", OTHERS)
def test_features_with_other_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    trained, other = (matrix(feature_names=names) for names in OTHERS[case])
    hook = hook_for_all(tmp_path / "run", train_data=other, validation_data=other)
    trial = saved_by(hook, 12, data=trained)
    said = messages(caplog)
    assert [message.split(" ")[0] for message in said] == [
        "predictions", "average_shap", "full_shap",
    ]  # fmt: skip
    assert all("height" in message for message in said)
    assert trial.tensor("labels").steps() == list(range(12))
    assert trial.tensor("feature_importance/gain/height").steps() == list(range(12))


def test_a_message_about_many_names_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = data.features(40, 0).repeat(200, axis=1)
    names = [f"a_feature_with_a_long_name_{number}" for number in range(1000)]
    trained = xgboost.DMatrix(values, data.labels(values), feature_names=names)
    other = xgboost.DMatrix(values, data.labels(values), feature_names=names[::-1])
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=["predictions"],
        validation_data=other,
    )  # fmt: skip
    data.train(hook, 3, data=trained)
    hook.close()
    (message,) = messages(caplog)
    assert message.startswith("predictions cannot be saved")
    assert len(message) < 2000


def test_other_categories(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    letters = pd.Series(np.array(list("abcd"))[np.arange(60) % 4])
    table = pd.DataFrame({"f0": letters.astype("category"), "f1": data.features(60)[:, 0]})
    other = table.assign(f0=letters.replace("a", "z").astype("category"))
    labels = letters.isin(["a", "c"])
    trained = xgboost.DMatrix(table, labels, enable_categorical=True)
    unknown = xgboost.DMatrix(other, labels, enable_categorical=True)
    hook = hook_for_all(tmp_path / "run", train_data=trained, validation_data=unknown)
    trial = saved_by(hook, 10, data=trained)
    (message,) = messages(caplog)
    assert message.startswith("predictions cannot be saved: the model cannot predict validation_da")
    assert "z" in message.partition("validation_data")[2]
    assert_saved(trial, [name for name in ALL if name != "predictions"], 10)


# ---- models that have not everything


def test_a_linear_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    params = {"booster": "gblinear", "objective": "binary:logistic", "nthread": 1}
    trial = saved_by(hook_for_all(tmp_path / "run"), params=params)
    # Five kinds of importance are one thing.
    assert messages(caplog) == [
        "feature_importance cannot be saved: the booster gblinear has no trees",
        "trees cannot be saved: the booster gblinear has no trees",
    ]
    assert_saved(trial, [n for n in ALL if n not in ("feature_importance", "trees")])


def test_trees_with_several_outputs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = data.features(60)
    targets = np.stack([values[:, 0], values[:, 1], values.sum(1)], axis=1)
    several = xgboost.DMatrix(values, targets)
    params = {
        "objective": "reg:squarederror", "multi_strategy": "multi_output_tree",
        "tree_method": "hist", "nthread": 1,
    }  # fmt: skip
    hook = hook_for_all(tmp_path / "run", train_data=several, validation_data=several)
    trial = saved_by(hook, params=params, data=several)
    said = messages(caplog)
    assert [message.split(" ")[0] for message in said] == ["average_shap", "full_shap", "trees"]
    assert all(re.search("multi-target|multi_output_tree", message) for message in said)
    model = data.train(None, ROUNDS, params, data=several)
    np.testing.assert_array_equal(
        trial.tensor("predictions").value(ROUNDS - 1), model.predict(several)
    )
    assert trial.tensor("feature_importance/gain/f0").steps() == list(range(ROUNDS))
    assert trial.tensor("labels").value(0).shape == (60, 3)


def test_training_that_evaluates_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trial = saved_by(hook_for_all(tmp_path / "run"), evals=[])
    assert_saved(trial, [name for name in ALL if name != "losses"])
    (message,) = messages(caplog)
    assert message.startswith("metrics cannot be saved: training evaluates nothing; give it data ")
    assert 'evals=[(train, "train")]' in message


def test_nothing_at_all_to_save(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = smd.Hook(tmp_path / "run", save_config=EVERY)
    model = data.train(hook, 5, evals=[])
    hook.close()
    assert len(messages(caplog)) == 1
    assert model.save_raw() == data.train(None, 5, evals=[]).save_raw()
    assert smd.create_trial(tmp_path / "run").tensor_names() == []


@pytest.mark.parametrize(
    "params",
    [
        {"booster": "dart", "rate_drop": 0.5, "one_drop": 1},
        {"subsample": 0.5, "colsample_bytree": 0.5},
        {"num_parallel_tree": 3, "subsample": 0.5},
        {"tree_method": "exact"},
        {"tree_method": "approx"},
        {"objective": "binary:hinge"},
        {"eta": 0.0},
        {"max_depth": 1, "gamma": 1e9},
    ],
    ids=str,
)
def test_observing_metrics_does_not_change_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, params: dict[str, Any]
) -> None:
    saved_by(hook_for_all(tmp_path / "run"), 10, params={**QUIET, **params})
    assert messages(caplog) == []


# ---- metrics


class Boom(Exception):
    """Something of the user's."""


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e300, 5e-324, -0.0, 0, True])
def test_metrics_that_are_unusual_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: float
) -> None:
    result: dict[str, Any] = {}
    trial = saved_by(
        hook_for_all(tmp_path / "run"), 4, evals_result=result,
        custom_metric=lambda predictions, data: ("odd", number),
    )  # fmt: skip
    saved = trial.tensor("train-odd")
    # XGBoost writes what a function returns down with six digits, and keeps that.
    np.testing.assert_array_equal(
        [saved.value(step)[0] for step in range(4)], result["train"]["odd"]
    )
    assert_saved(trial, ALL, 4)
    assert messages(caplog) == []


@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_metric_that_raises(tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int) -> None:
    calls = iter(range(100))

    def metric(predictions: Any, matrix: Any) -> tuple[str, float]:
        if next(calls) == at:
            raise Boom("mine")
        return "mine", 1.0

    hook = hook_for_all(tmp_path / "run")
    with pytest.raises(Boom, match=r"^mine$") as caught:
        data.train(hook, 10, custom_metric=metric, data=matrix())
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    # The hook is as good as new.
    data.train(hook, 3, data=matrix())
    hook.close()
    trial = smd.create_trial(tmp_path / "run")
    # The round that has not come to its end has no step of its own.
    steps = trial.tensor("train-logloss").steps()
    assert steps[:at] == list(range(at))
    assert len(steps) == at + 3
    assert trial.tensor("trees/Gain").steps() == steps
    assert messages(caplog) == []


class Interrupts(TrainingCallback):
    """Raises after a round, before it or at the end of training."""

    def __init__(self, error: BaseException, when: str) -> None:
        self._error = error
        self._when = when

    def _raise(self, when: str, epoch: int) -> bool:
        if when == self._when and epoch == 3:
            raise self._error
        return False

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return self._raise("before", epoch)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return self._raise("after", epoch)

    def after_training(self, model: Any) -> Any:
        self._raise("end", 3)
        return model


@pytest.mark.parametrize(
    ("error", "when", "first"),
    [
        (KeyboardInterrupt(), "before", True),
        (KeyboardInterrupt(), "before", False),
        (KeyboardInterrupt(), "after", True),
        (KeyboardInterrupt(), "after", False),
        (KeyboardInterrupt(), "end", True),
        (KeyboardInterrupt(), "end", False),
        (SystemExit(3), "after", True),
        (Boom("mine"), "after", True),
        (Boom("mine"), "end", False),
    ],
    ids=repr,
)
def test_an_exception_in_another_callback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: BaseException, when: str, first: bool
) -> None:
    hook = hook_for_all(tmp_path / "run")
    callbacks: list[Any] = [hook]
    callbacks.insert(0 if first else 1, Interrupts(error, when))
    rows = matrix()
    with pytest.raises(type(error)) as caught:
        xgboost.train(data.BINARY, rows, 5, evals=[(rows, "train")], callbacks=callbacks,
                      verbose_eval=False)  # fmt: skip
    assert caught.value is error
    hook.flush()
    hook.close()
    trial = smd.create_trial(tmp_path / "run")
    # All rounds that were reported to the hook.
    ended = {"before": 3, "after": 3 if first else 4, "end": 5}[when]
    assert_saved(trial, ALL, ended)
    assert messages(caplog) == []


# ---- errors of XGBoost's own

BAD_TRAININGS: dict[str, dict[str, Any]] = {
    "unknown objective": {"params": {"objective": "nonsense"}},
    "unknown booster": {"params": {"booster": "nonsense"}},
    "negative depth": {"params": {"max_depth": -1}},
    "no number of classes": {"params": {"objective": "multi:softprob"}},
    "unknown metric": {"params": {**data.BINARY, "eval_metric": "nonsense"}},
    "labels that do not fit": {"params": {"objective": "binary:logistic"}, "labels": 7},
    "a name with a dash": {"evals": "a-b"},
    "a name with a space": {"evals": "a b"},
    "a metric that is no number": {"custom_metric": lambda predictions, matrix: ("m", None)},
    "a metric that returns nonsense": {"custom_metric": lambda predictions, matrix: 5},
    "an objective that raises": {"obj": lambda predictions, matrix: 1 / 0},
}


def outcome(hook: smd.Hook | None, case: dict[str, Any]) -> tuple[type[BaseException], str]:
    """The result of training: the class of the exception, and its message."""
    rows = matrix()
    options = dict(case)
    if "labels" in options:
        rows.set_label(np.full(60, options.pop("labels")))
    if "evals" in options:
        options["evals"] = [(rows, options["evals"])]
    options["params"] = {**options.get("params", data.BINARY), "verbosity": 0}
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever XGBoost raises
        data.train(hook, 3, data=rows, **options)
    # Without the time and the addresses in it.
    return caught.type, re.sub(r"\[[\d:]+\]|\[?0x\w+\]?|Stack trace(?s:.)*", "", str(caught.value))


@pytest.mark.parametrize("case", BAD_TRAININGS)
def test_errors_of_xgboost_come_out_unchanged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    hook = hook_for_all(tmp_path / "run")
    assert outcome(hook, BAD_TRAININGS[case]) == outcome(None, BAD_TRAININGS[case])
    # The hook need not report them.
    assert messages(caplog) == []
    # And the next training, of which all is well, is saved.
    model = data.train(hook, 3, data=matrix())
    hook.close()
    assert model.save_raw() == data.train(None, 3, data=matrix()).save_raw()
    trial = smd.create_trial(tmp_path / "run")
    assert len(trial.tensor("train-logloss").steps()) == 3
    assert len(trial.tensor("trees/Gain").steps()) >= 3


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def quick_run(folder: Path, **options: Any) -> Trial:
    """The run of one round on a few rows."""
    out_dir = Path(tempfile.mkdtemp(dir=folder)) / "run"
    training = {key: options.pop(key) for key in ("custom_metric", "evals") if key in options}
    hook = smd.Hook(out_dir, save_config=EVERY, **options)
    data.train(hook, 1, data=matrix(20), **training)
    hook.close()
    smd.del_hook()
    return smd.create_trial(out_dir)


# ---- hyperparameters


class Unprintable:
    """An object with which nothing can be done."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


ODD_VALUES: dict[str, tuple[Any, list[Any] | None]] = {
    # What is saved of it; None where that is left open.
    "none": (None, ["None"]),
    "list": ([1, 2, 3], [1, 2, 3]),
    "tuple": ((1, 0, -1), [1, 0, -1]),
    "list of texts": (["rmse", "auc"], ["rmse", "auc"]),
    "array": (np.arange(3), [0, 1, 2]),
    "numpy number": (np.float32(0.5), [0.5]),
    "half": (np.float16(0.5), [0.5]),
    "nan": (math.nan, [math.nan]),
    "inf": (-math.inf, [-math.inf]),
    "large": (2**64 - 1, [2**64 - 1]),
    "huge": (2**70, [str(2**70)]),
    "bool": (True, [True]),
    "empty text": ("", [""]),
    "unicode": ("höhe 😀", ["höhe 😀"]),
    "surrogate": ("a\ud800b", None),
    "null": ("a\0b", ["a\0b"]),
    "long text": ("x" * 100_000, ["x" * 100_000]),
    "bytes": (b"ab\xff", ["b'ab\\xff'"]),
    "empty list": ([], ["[]"]),
    "empty dict": ({}, ["{}"]),
    "lists of lists": ([[1, 2], [3]], ["[[1, 2], [3]]"]),
    "dict": ({"a": {"b": [1]}}, ['{"a": {"b": [1]}}']),
    "dict with numbers": ({0: 1, 1: -1}, ['{"0": 1, "1": -1}']),
    "dict with tuples": ({(0, 1): 2}, None),
    "mixed": ([1, "a", None], ['[1, "a", null]']),
    "set": ({1}, ["{1}"]),
    "callable": (print, ["<built-in function print>"]),
    "class": (int, ["<class 'int'>"]),
    "complex": (1j, ["1j"]),
    "decimal": (decimal.Decimal("0.1"), ["0.1"]),
    "date": (datetime.date(2020, 1, 2), ["2020-01-02"]),
    "numpy date": (np.datetime64("2020-01-02"), ["2020-01-02"]),
    "long double": (np.longdouble(0.5), None),
    "list of long doubles": ([np.longdouble(0.5)], None),
    "table": (np.ones((2, 2)), None),
    "objects": (np.array([1, None], object), None),
    "circle": (circle(), None),
    "unprintable": (Unprintable(), None),
    "list of unprintables": ([Unprintable()], None),
    "matrix": (data.matrix(3), None),
    "data frame": (pd.DataFrame({"a": [1]}), None),
}


def assert_kept(trial: Trial, name: str, expected: list[Any] | None) -> None:
    """A hyperparameter was saved, and as this."""
    saved = trial.tensor(f"hyperparameters/{name}").value(0)
    assert saved.size
    if expected is not None:
        np.testing.assert_array_equal(saved, expected)
        assert saved.dtype.kind == np.array(expected).dtype.kind


@pytest.mark.parametrize("name", ODD_VALUES)
def test_unusual_hyperparameter_is_saved_as_a_string_without_affecting_others(
    folder: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    value, expected = ODD_VALUES[name]
    trial = quick_run(
        folder, hyperparameters={"odd": value, "eta": 0.3},
        include_collections=["hyperparameters", "trees"],
    )  # fmt: skip
    assert_kept(trial, "odd", expected)
    assert_kept(trial, "eta", [0.3])
    assert trial.tensor("train-logloss").steps() == trial.tensor("trees/Gain").steps() == [0]
    assert messages(caplog) == []


def test_unusual_hyperparameters_can_be_read_by_smdebug_1_0(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = {name: value for name, (value, _) in ODD_VALUES.items()}
    trial = saved_by(hook_for_all(tmp_path / "run", hyperparameters=odd, format="v1"), 2)
    for name, (_, expected) in ODD_VALUES.items():
        assert_kept(trial, name, expected)
    assert_saved(trial, [name for name in ALL if name != "hyperparameters"], 2)
    assert messages(caplog) == []


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a/b", "a/b"), ("a b", "a b"), ("", ""), ("é😀", "é😀"), ("a\nb", "a\nb"),
        ("a:0", "a:0"), ("../x", "../x"), ("x" * 1000, "x" * 1000), (1, "1"), (None, "None"),
        (True, "True"), ((1, 2), "(1, 2)"), (b"x", "b'x'"), ("\ud800", None),
    ],
)  # fmt: skip
def test_unusual_names_of_hyperparameters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: Any, name: str | None
) -> None:
    hook = hook_for_all(tmp_path / "run", hyperparameters={key: 7, "eta": 0.3})
    trial = saved_by(hook, 2)
    assert trial.tensor("hyperparameters/eta").value(1).tolist() == [0.3]
    assert_saved(trial, ALL, 2)
    names = trial.tensor_names(collection="hyperparameters")
    assert len(names) == 2
    if name is not None:
        assert trial.tensor(f"hyperparameters/{name}").value(1).tolist() == [7]
    assert messages(caplog) == []


def test_no_hyperparameters_in_the_dict(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trial = saved_by(hook_for_all(tmp_path / "run", hyperparameters={}), 3)
    assert_saved(trial, [name for name in ALL if name != "hyperparameters"], 3)
    assert messages(caplog) == []


# Numpy takes zeros off the end of a text.
TEXTS = st.text(max_size=20).filter(lambda text: not text.endswith("\0"))
WHOLE = st.integers(-(2**63), 2**63 - 1)
LISTS = st.one_of(
    *(st.lists(each, min_size=1, max_size=5) for each in (WHOLE, st.floats(), TEXTS, st.booleans()))
)


@settings(max_examples=30, deadline=None)
@given(
    given=st.dictionaries(
        st.text(max_size=10),
        st.one_of(WHOLE, st.integers(), st.floats(), st.booleans(), TEXTS, LISTS, st.none()),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_hyperparameters_come_back_as_they_were(folder: Path, given: dict[str, Any]) -> None:
    trial = quick_run(folder, hyperparameters=given, include_collections=["hyperparameters"])
    assert set(trial.tensor_names(collection="hyperparameters")) == {
        f"hyperparameters/{name}" for name in given
    }
    for name, value in given.items():
        saved = trial.tensor(f"hyperparameters/{name}").value(0)
        too_large = isinstance(value, int) and not -(2**63) <= value < 2**64
        if value is None or too_large:
            assert saved.tolist() == [str(value)]
            continue
        expected = value if isinstance(value, list) else [value]
        assert saved.dtype.kind in {bool: "b", int: "iu", float: "f", str: "U"}[type(expected[0])]
        np.testing.assert_array_equal(saved, expected)


# ---- names of metrics

DECREASING = [
    "rmse", "rmsle", "mae", "mape", "mphe", "logloss", "error", "error@0.7", "merror", "mlogloss",
    "poisson-nloglik", "gamma-nloglik", "cox-nloglik", "gamma-deviance", "tweedie-nloglik@1.5",
    "aft-nloglik", "quantile",
]  # fmt: skip
INCREASING = [
    "auc", "aucpr", "ams@0.15", "pre", "pre@5", "map", "map@10", "map@10-", "map-", "ndcg",
    "ndcg@32", "ndcg@5-", "ndcg-", "interval-regression-accuracy",
]  # fmt: skip


def metrics_named(names: list[str]) -> Callable[[Any, Any], list[tuple[str, float]]]:
    return lambda predictions, matrix: [(name, 1.0) for name in names]


@pytest.mark.parametrize("name", ["train", "validation_0", "a/b", "Ö", "3", ""])
def test_metrics_of_xgboosts_own_and_which_of_them_are_losses(folder: Path, name: str) -> None:
    rows = matrix(20)
    trial = quick_run(
        folder, include_collections=["losses"], evals=[(rows, name)],
        custom_metric=metrics_named([*DECREASING, *INCREASING]),
    )  # fmt: skip
    # Every custom metric is there, and the one of the objective, which is among them.
    found = trial.tensor_names(collection="metrics")
    assert sorted(found) == sorted(f"{name}-{each}" for each in [*DECREASING, *INCREASING])
    losses = trial.tensor_names(collection="losses")
    assert sorted(losses) == sorted(f"{name}-{each}" for each in DECREASING)


def test_a_metric_with_half_a_character_in_its_name(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = quick_run(
        folder, include_collections=["trees"], custom_metric=metrics_named(["a\ud800b", "other"])
    )
    found = trial.tensor_names(collection="metrics")
    assert {"train-logloss", "train-other"} <= set(found)
    assert len(found) == 3
    assert trial.tensor("trees/Gain").steps() == [0]
    assert messages(caplog) == []


# What XGBoost itself can write down and read again: no blanks and colons.
SIGNS = string.ascii_letters + string.digits + "_@./+*()[]{}|^$?\\-é"
METRIC_NAMES = st.text(SIGNS, min_size=1, max_size=12).filter(lambda name: name[0] not in "-@")


@settings(max_examples=30, deadline=None)
@given(
    data_set=st.text(string.ascii_letters + string.digits + "_.é", min_size=1, max_size=8),
    names=st.lists(METRIC_NAMES, min_size=1, max_size=8, unique=True),
)
def test_metrics_may_have_any_name(folder: Path, data_set: str, names: list[str]) -> None:
    rows = matrix(20)
    trial = quick_run(
        folder, include_collections=["losses"], evals=[(rows, data_set)],
        custom_metric=metrics_named(names),
    )  # fmt: skip
    every = {f"{data_set}-{name}" for name in [*names, "logloss"]}
    assert set(trial.tensor_names(collection="metrics")) == every
    # Losses are found by name; a metric without any of these names is a loss.
    words = "auc|map|ndcg|pre|acc|recall|f1|r2|std|score"
    certain = {name for name in every if not re.search(words, name, re.IGNORECASE)}
    assert certain <= set(trial.tensor_names(collection="losses")) <= every


# ---- where the run goes


def in_the_way(out_dir: Path, name: str) -> Path:
    """A directory that cannot be created: a file has its path."""
    out_dir.mkdir()
    (out_dir / name).write_text("in the way")
    return out_dir


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("name", ["events", "index", "collections"])
def test_boosting_is_not_affected_if_nothing_can_be_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, format: str
) -> None:
    hook = hook_for_all(in_the_way(tmp_path / "run", name), format=format)
    model = data.train(hook, 10, data=matrix())
    hook.close()
    assert model.save_raw() == data.train(None, 10, data=matrix()).save_raw()
    (error,) = messages(caplog, logging.ERROR)
    assert error.startswith("saving has stopped, training continues; WriteFailed: could not write ")
    assert str(tmp_path / "run" / name) in error
    assert f"the run in {tmp_path / 'run'} is not complete" in messages(caplog)[-1]


@pytest.mark.parametrize("out_dir", ["/dev/null/run", "{}/file/run"])
def test_a_directory_that_cannot_be_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, out_dir: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    hook = hook_for_all(Path(out_dir.format(tmp_path)))
    model = data.train(hook, 10, data=matrix())
    hook.close()
    assert model.save_raw() == data.train(None, 10, data=matrix()).save_raw()
    assert len(messages(caplog, logging.ERROR)) == 1


def test_on_error_raise_raises_the_original_error(tmp_path: Path) -> None:
    hook = hook_for_all(in_the_way(tmp_path / "run", "events"), on_error="raise")
    with pytest.raises(WriteFailed, match="could not write"):
        data.train(hook, 10, data=matrix())
    # Said once.
    data.train(hook, 3, data=matrix())
    hook.close()


def test_exception_of_the_script_in_a_with_block_is_not_hidden(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def block() -> None:
        with smd.Hook(in_the_way(tmp_path / "run", "index"), on_error="raise") as hook:
            hook.save_scalar("a", 1)
            raise Boom

    with pytest.raises(Boom):
        block()
    assert "is not complete" in messages(caplog)[-1]


@NOT_ROOT
def test_a_directory_that_cannot_be_written_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    hook = hook_for_all(tmp_path / "closed" / "run")
    model = data.train(hook, 10, data=matrix())
    hook.close()
    assert model.save_raw() == data.train(None, 10, data=matrix()).save_raw()
    (error,) = messages(caplog, logging.ERROR)
    assert "Permission denied" in error


FULL = """
    import resource, sys
    import numpy as np, xgboost
    import smdebug.xgboost as smd

    values = np.random.default_rng(0).normal(size=(2000, 5))
    matrix = xgboost.DMatrix(values, values[:, 0] > 0)
    params = {"nthread": 1, "objective": "binary:logistic"}
    hook = smd.Hook(
        sys.argv[1], save_config=smd.SaveConfig(save_interval=1), validation_data=matrix,
        include_collections=["predictions", "labels"],
    )
    # No file may grow beyond that, as if there was no more room.
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    model = xgboost.train(params, matrix, 5, evals=[(matrix, "train")], callbacks=[hook],
                          verbose_eval=False)
    hook.close()
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    alone = xgboost.train(params, matrix, 5, evals=[(matrix, "train")], verbose_eval=False)
    print(model.save_raw() == alone.save_raw())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="files have no limits there")
def test_full_disk(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path / "run")],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True"]
    assert done.stderr.count("saving has stopped, training continues") == 1
    assert "File too large" in done.stderr
    assert "is not complete" in done.stderr


# ---- hooks that are no longer there


@pytest.mark.parametrize("first", [True, False], ids=["before the hook", "after the hook"])
def test_a_hook_may_be_closed_in_the_middle_of_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: bool
) -> None:
    hook = hook_for_all(tmp_path / "run")

    class Closes(TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if epoch == 2:
                hook.close()
            return False

    rows, callbacks = matrix(), [Closes(), hook] if first else [hook, Closes()]
    model = xgboost.train(data.BINARY, rows, 6, evals=[(rows, "train")], callbacks=callbacks,
                          verbose_eval=False)  # fmt: skip
    assert model.save_raw() == data.train(None, 6, data=matrix()).save_raw()
    assert_saved(smd.create_trial(tmp_path / "run"), ALL, 2 if first else 3)
    assert messages(caplog) == []


def test_closed_hook_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = hook_for_all(tmp_path / "run")
    hook.close()
    model = data.train(hook, 10, data=matrix())
    (message,) = messages(caplog)
    assert "saves nothing" in message
    assert "closed" in message
    assert model.save_raw() == data.train(None, 10, data=matrix()).save_raw()
    assert not (tmp_path / "run").exists()


def test_a_pickled_hook_says_once_that_it_saves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = pickle.loads(pickle.dumps(hook_for_all(tmp_path / "run")))
    model = data.train(copy, 10, data=matrix())
    assert len(messages(caplog)) == 1
    assert model.save_raw() == data.train(None, 10, data=matrix()).save_raw()
    assert (copy.train_data, copy.validation_data, copy.hyperparameters) == (None, None, None)
