"""The data that a hook is given: matrices of all kinds, and files of rows."""

from __future__ import annotations

import logging
import math
import os
import re
import string
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xgboost
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file
from tests.xgboost import data

import smdebug.xgboost as smd
from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.reductions import Array
    from smdebug.trials import Trial

EVERY = smd.SaveConfig(save_interval=1)
EXPLAINED = ["labels", "predictions", "average_shap", "full_shap"]
ROWS, ROUNDS = 60, 4
CSV_TYPES = ["csv", "text/csv"]
LIBSVM_TYPES = ["libsvm", "text/libsvm", "text/x-libsvm", None]


def numbers(rows: int = ROWS, seed: int = 5) -> Array:
    """Features that text holds exactly in a few digits, so that files and matrices are alike."""
    found: Array = np.round(data.features(rows, seed) * 8) / 8
    return found


VALUES = numbers()
LABELS = data.labels(VALUES)


def write_csv(path: Path, values: Array = VALUES, labels: Array = LABELS, end: str = "\n") -> Path:
    """Writes rows with the label first; what is NaN is left empty."""
    rows = [
        ",".join([str(label), *("" if math.isnan(number) else str(number) for number in row)])
        for label, row in zip(labels, values, strict=True)
    ]
    path.write_bytes("".join(row + end for row in rows).encode())
    return path


def write_libsvm(path: Path, values: Array = VALUES, labels: Any = LABELS) -> Path:
    """Write rows of `label index:value`; NaN is omitted."""
    rows = [
        " ".join([str(label), *(f"{at}:{v}" for at, v in enumerate(row) if not math.isnan(v))])
        for label, row in zip(labels, values, strict=True)
    ]
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def written(path: Path, content_type: str | None) -> Path:
    """The same rows as a file of that type."""
    return write_csv(path) if content_type in CSV_TYPES else write_libsvm(path)


def training(hook: Any, rounds: int = ROUNDS, matrix: Any = None, **options: Any) -> Any:
    """Trains on the rows above."""
    matrix = xgboost.DMatrix(VALUES, LABELS) if matrix is None else matrix
    return data.train(hook, rounds, data=matrix, **options)


def explain(
    out_dir: Path,
    given: Any,
    rounds: int = ROUNDS,
    matrix: Any = None,
    params: Any = None,
    **options: Any,
) -> tuple[Trial, Any]:
    """Train with a hook that has the same train_data and validation_data."""  # fmt: skip
    hook = smd.Hook(
        out_dir, save_config=EVERY, include_collections=EXPLAINED, train_data=given,
        validation_data=given, **options,
    )  # fmt: skip
    model = training(hook, rounds, matrix, params=params)
    hook.close()
    return smd.create_trial(out_dir), model


def assert_explains(trial: Trial, model: Any, matrix: Any, labels: Any = LABELS) -> None:
    """What is in the run is what the final model says of this matrix."""
    step = trial.steps()[-1]
    np.testing.assert_array_equal(trial.tensor("labels").value(step), labels)
    np.testing.assert_array_equal(trial.tensor("predictions").value(step), model.predict(matrix))
    contributions = model.predict(matrix, pred_contribs=True)
    np.testing.assert_array_equal(trial.tensor("full_shap").value(step), contributions)
    names = model.feature_names or [f"f{number}" for number in range(model.num_features())]
    for place, name in enumerate(names):
        column = contributions[..., place]
        np.testing.assert_array_equal(trial.tensor(f"full_shap/{name}").value(step), column)
        mean = column.astype(np.float64).mean(axis=0)
        saved = trial.tensor(f"average_shap/{name}").value(step)
        np.testing.assert_allclose(saved, np.atleast_1d(mean), rtol=1e-6, atol=1e-9)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


class Between(xgboost.callback.TrainingCallback):
    """Calls a function with the number of each round that has ended."""

    def __init__(self, then: Callable[[int], object]) -> None:
        self._then = then

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._then(epoch)
        return False


class Batches(xgboost.DataIter):
    """The rows above in three batches, kept on disk as XGBoost does it."""

    def __init__(self, folder: Path) -> None:
        self._at = 0
        super().__init__(cache_prefix=str(folder / "cache"))

    def next(self, input_data: Any) -> bool:
        if self._at == 3:
            return False
        rows = slice(self._at * 20, (self._at + 1) * 20)
        input_data(data=VALUES[rows], label=LABELS[rows])
        self._at += 1
        return True

    def reset(self) -> None:
        self._at = 0


class OwnMatrix(xgboost.DMatrix):
    """What a user may derive from a DMatrix."""


def with_gaps(values: Array = VALUES) -> Array:
    """The same with every fifth cell missing."""
    found: Array = values.copy()
    found.flat[::5] = np.nan
    return found


# ---- matrices

MATRICES: dict[str, Callable[[Path], Any]] = {
    "DMatrix": lambda _: xgboost.DMatrix(VALUES, LABELS),
    "of a derived class": lambda _: OwnMatrix(VALUES, LABELS),
    "QuantileDMatrix": lambda _: xgboost.QuantileDMatrix(VALUES, LABELS),
    "coarse QuantileDMatrix": lambda _: xgboost.QuantileDMatrix(VALUES, LABELS, max_bin=4),
    "ExtMemQuantileDMatrix": lambda folder: xgboost.ExtMemQuantileDMatrix(Batches(folder)),
    "DMatrix on disk": lambda folder: xgboost.DMatrix(Batches(folder)),
    "with gaps": lambda _: xgboost.DMatrix(with_gaps(), LABELS),
    "QuantileDMatrix with gaps": lambda _: xgboost.QuantileDMatrix(with_gaps(), LABELS),
    "sparse": lambda _: xgboost.DMatrix(scipy.sparse.csr_matrix(np.maximum(VALUES, 0)), LABELS),
    "with weights": lambda _: xgboost.DMatrix(VALUES, LABELS, weight=np.arange(ROWS) + 1),
    "with a margin": lambda _: xgboost.DMatrix(VALUES, LABELS, base_margin=np.arange(ROWS) / ROWS),
    "QuantileDMatrix with a margin": lambda _: xgboost.QuantileDMatrix(
        VALUES, LABELS, base_margin=np.arange(ROWS) / ROWS
    ),
    "derived with a margin": lambda _: OwnMatrix(
        VALUES, LABELS, base_margin=np.arange(ROWS) / ROWS
    ),
}  # fmt: skip


ON_DISK = ["ExtMemQuantileDMatrix", "DMatrix on disk"]


@pytest.mark.parametrize("kind", MATRICES)
def test_values_of_a_matrix(tmp_path: Path, kind: str) -> None:
    matrix = MATRICES[kind](tmp_path)
    trial, model = explain(tmp_path / "run", matrix)
    assert_explains(trial, model, matrix)


@pytest.mark.parametrize("kind", [kind for kind in MATRICES if kind not in ON_DISK])
@pytest.mark.parametrize("samples", [1, 7, ROWS - 1])
def test_some_rows_of_a_matrix(tmp_path: Path, kind: str, samples: int) -> None:
    matrix = MATRICES[kind](tmp_path)
    trial, model = explain(tmp_path / "run", matrix, shap_samples=samples)
    saved = trial.tensor("full_shap").value(ROUNDS - 1)
    chosen = np.linspace(0, ROWS - 1, samples).astype(int)
    expected = model.predict(matrix, pred_contribs=True)[chosen]
    np.testing.assert_array_equal(saved, expected)
    # Labels and predictions are of all rows, whatever SHAP values take.
    np.testing.assert_array_equal(
        trial.tensor("predictions").value(ROUNDS - 1), model.predict(matrix)
    )


@pytest.mark.parametrize("samples", [ROWS, ROWS + 1, 10**9])
def test_as_many_samples_as_rows_are_all_rows(tmp_path: Path, samples: int) -> None:
    matrix = xgboost.DMatrix(VALUES, LABELS)
    trial, model = explain(tmp_path / "run", matrix, shap_samples=samples)
    assert_explains(trial, model, matrix)


@pytest.mark.parametrize("kind", ON_DISK)
def test_external_memory_matrix_cannot_be_sampled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    matrix = MATRICES[kind](tmp_path)
    trial, model = explain(tmp_path / "run", matrix, shap_samples=7)
    assert "full_shap" not in trial.tensor_names()
    np.testing.assert_array_equal(
        trial.tensor("predictions").value(ROUNDS - 1), model.predict(matrix)
    )
    said = warnings_in(caplog)
    assert len(said) == 2
    # What is the matter, and what to do.
    assert all("train_data" in each and "shap_samples" in each for each in said)


def test_a_sample_keeps_the_margins_of_all_classes(tmp_path: Path) -> None:
    labels = data.labels(VALUES, 3)
    margins = np.linspace(-1, 1, ROWS * 3).reshape(ROWS, 3)
    params = {**data.BINARY, "objective": "multi:softprob", "num_class": 3}
    for number, kind in enumerate([xgboost.DMatrix, xgboost.QuantileDMatrix]):
        matrix = kind(VALUES, labels, base_margin=margins)
        trial, model = explain(
            tmp_path / f"{number}", matrix, matrix=matrix, params=params, shap_samples=7
        )
        chosen = np.linspace(0, ROWS - 1, 7).astype(int)
        expected = model.predict(matrix, pred_contribs=True)[chosen]
        assert expected.shape == (7, 3, data.FEATURES + 1)
        np.testing.assert_array_equal(trial.tensor("full_shap").value(ROUNDS - 1), expected)


def categories(order: str) -> tuple[pd.DataFrame, Array]:
    """A table with a category that tells the label, its names in this order."""
    letters = np.array(list("abcd"))[np.arange(ROWS) % 4]
    table = pd.DataFrame(
        {"letter": pd.Categorical(letters, categories=list(order)), "x": VALUES[:, 0]}
    )
    return table, np.isin(letters, ["a", "c"]).astype(int)


@pytest.mark.parametrize("samples", [7, ROWS])
@pytest.mark.parametrize("order", ["abcd", "dbca"])
@pytest.mark.parametrize("kind", ["DMatrix", "QuantileDMatrix"])
def test_categories_mean_the_same_whatever_their_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, order: str, samples: int
) -> None:
    table, labels = categories("abcd")
    trained = xgboost.DMatrix(table, labels, enable_categorical=True)
    other, _ = categories(order)
    matrix = getattr(xgboost, kind)(other, labels, enable_categorical=True)
    params = {**data.BINARY, "max_cat_to_onehot": 1}
    trial, model = explain(
        tmp_path / "run", matrix, matrix=trained, params=params, shap_samples=samples
    )
    chosen = np.linspace(0, ROWS - 1, samples).astype(int)
    expected = model.predict(trained, pred_contribs=True)[chosen]
    if "full_shap" in trial.tensor_names():
        np.testing.assert_array_equal(trial.tensor("full_shap").value(ROUNDS - 1), expected)
        assert warnings_in(caplog) == []
    else:
        # Better nothing than the values of other categories.
        assert (kind, samples) == ("QuantileDMatrix", 7)
        assert len(warnings_in(caplog)) == 2


def test_categories_without_names(tmp_path: Path) -> None:
    # XGBoost accepts numbers as categories, too, on request.
    values = np.stack([np.arange(ROWS) % 4, VALUES[:, 0]], axis=1)
    for number, kind in enumerate([xgboost.DMatrix, xgboost.QuantileDMatrix]):
        matrix = kind(values, LABELS, feature_types=["c", "float"], enable_categorical=True)
        trial, model = explain(tmp_path / f"{number}", matrix, matrix=matrix, shap_samples=7)
        chosen = np.linspace(0, ROWS - 1, 7).astype(int)
        expected = model.predict(matrix, pred_contribs=True)[chosen]
        np.testing.assert_array_equal(trial.tensor("full_shap").value(ROUNDS - 1), expected)


@pytest.mark.parametrize("kind", ["DMatrix", "QuantileDMatrix"])
def test_a_matrix_is_left_as_it_was(tmp_path: Path, kind: str) -> None:
    def contents(matrix: Any) -> list[Any]:
        return [
            matrix.num_row(), matrix.num_col(), matrix.num_nonmissing(), matrix.feature_names,
            matrix.feature_types, matrix.get_label().tolist(), matrix.get_weight().tolist(),
            matrix.get_data().toarray().tolist(),
        ]  # fmt: skip

    matrix = getattr(xgboost, kind)(VALUES, LABELS, weight=np.arange(ROWS) + 1)
    before = contents(matrix)
    explain(tmp_path / "run", matrix, shap_samples=7)
    assert contents(matrix) == before


def test_training_matrix_may_be_used_as_train_data(tmp_path: Path) -> None:
    matrix = xgboost.DMatrix(VALUES, LABELS)
    trial, model = explain(tmp_path / "run", matrix, matrix=matrix)
    assert_explains(trial, model, matrix)
    alone = training(None, matrix=xgboost.DMatrix(VALUES, LABELS))
    assert model.save_raw() == alone.save_raw()


def test_inputs_can_be_read_back(tmp_path: Path) -> None:
    matrix = xgboost.DMatrix(VALUES, LABELS)
    place = (write_csv(tmp_path / "rows.csv"), "csv")
    hook = smd.Hook(tmp_path / "run", train_data=matrix, validation_data=place)
    assert hook.train_data is matrix
    assert hook.validation_data is place


# ---- files


@pytest.mark.parametrize("as_text", [True, False], ids=["str", "Path"])
@pytest.mark.parametrize("content_type", [*CSV_TYPES, *LIBSVM_TYPES])
def test_file_and_equal_matrix_give_the_same_tensors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content_type: str | None, as_text: bool
) -> None:
    path = written(tmp_path / "rows", content_type)
    given = (str(path) if as_text else path, content_type)
    trial, model = explain(tmp_path / "run", given)
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))
    assert model.save_raw() == training(None).save_raw()
    assert warnings_in(caplog) == []


def test_list_is_accepted_instead_of_a_tuple(tmp_path: Path) -> None:
    trial, model = explain(tmp_path / "run", [write_csv(tmp_path / "rows"), "csv"])
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


@pytest.mark.parametrize("content_type", ["csv", "libsvm"])
def test_some_rows_of_a_file(tmp_path: Path, content_type: str) -> None:
    path = written(tmp_path / "rows", content_type)
    trial, model = explain(tmp_path / "run", (path, content_type), shap_samples=9)
    chosen = np.linspace(0, ROWS - 1, 9).astype(int)
    expected = model.predict(xgboost.DMatrix(VALUES), pred_contribs=True)[chosen]
    np.testing.assert_array_equal(trial.tensor("full_shap").value(ROUNDS - 1), expected)


@pytest.mark.parametrize("content_type", ["csv", "libsvm"])
def test_cells_that_are_missing(tmp_path: Path, content_type: str) -> None:
    values = with_gaps()
    write = write_csv if content_type == "csv" else write_libsvm
    trial, model = explain(tmp_path / "run", (write(tmp_path / "rows", values), content_type))
    assert_explains(trial, model, xgboost.DMatrix(values, LABELS))


@pytest.mark.parametrize("word", ["nan", "NaN", ""])
def test_messages_about_missing_inputs(tmp_path: Path, word: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"1,{word},0.5,1,2,-3\n0,1.5,{word},1,2,3\n")
    trial, model = explain(tmp_path / "run", (path, "csv"))
    values = np.array([[np.nan, 0.5, 1, 2, -3], [1.5, np.nan, 1, 2, 3]])
    assert_explains(trial, model, xgboost.DMatrix(values), [1, 0])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ends_of_lines(tmp_path: Path, end: str) -> None:
    path = write_csv(tmp_path / "rows.csv", end=end)
    trial, model = explain(tmp_path / "run", (path, "csv"))
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


def test_a_file_that_does_not_end_with_a_line(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "rows.csv")
    path.write_bytes(path.read_bytes().rstrip())
    trial, model = explain(tmp_path / "run", (path, "csv"))
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


@pytest.mark.parametrize("text", ["+1,+2,.5,5.,1e1,-2.5E-1", " 1, 2 ,0.5,\t5,10 , -0.25 "])
def test_spellings_of_numbers(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{text}\n")
    trial, model = explain(tmp_path / "run", (path, "csv"))
    assert_explains(trial, model, xgboost.DMatrix(np.array([[2, 0.5, 5, 10, -0.25]])), [1])


@pytest.mark.parametrize("samples", [ROWS, 7])
@pytest.mark.parametrize("form", ["{0}:{1} {3}", "{0} qid:{2} {3}", "{0} {3}"])
def test_queries_weights_and_comments_of_libsvm(tmp_path: Path, form: str, samples: int) -> None:
    lines = write_libsvm(tmp_path / "plain").read_text().splitlines()
    # Chosen rows may be some of a query only.
    texts = [
        form.format(label, 1 + number / 8, number // 5, rest) + f" # row {number}"
        for number, (label, rest) in enumerate(line.split(" ", 1) for line in lines)
    ]
    path = tmp_path / "rows.libsvm"
    path.write_text("# a file of rows\n\n" + "\n".join(texts) + "\n")
    trial, model = explain(tmp_path / "run", (path, "libsvm"), shap_samples=samples)
    matrix = xgboost.DMatrix(VALUES, LABELS)
    np.testing.assert_array_equal(trial.tensor("labels").value(0), LABELS)
    np.testing.assert_array_equal(trial.tensor("predictions").value(3), model.predict(matrix))
    chosen = np.linspace(0, ROWS - 1, samples).astype(int)
    expected = model.predict(matrix, pred_contribs=True)[chosen]
    np.testing.assert_array_equal(trial.tensor("full_shap").value(3), expected)


def test_a_row_of_libsvm_may_have_a_label_only(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("1\n0 0:1 1:2 2:3 3:4 4:5\n+1\n")
    trial, model = explain(tmp_path / "run", (path, None))
    gaps = [np.nan] * 5
    assert_explains(
        trial, model, xgboost.DMatrix(np.array([gaps, [1, 2, 3, 4, 5], gaps])), [1, 0, 1]
    )


def test_rows_of_libsvm_need_not_name_the_last_features_to_be_predicted(tmp_path: Path) -> None:
    values = VALUES.copy()
    values[:, 3:] = np.nan
    path = write_libsvm(tmp_path / "rows", values)
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=["predictions", "labels"],
        validation_data=(path, None),
    )  # fmt: skip
    model = training(hook)
    hook.close()
    saved = smd.create_trial(tmp_path / "run").tensor("predictions").value(ROUNDS - 1)
    np.testing.assert_array_equal(saved, model.predict(xgboost.DMatrix(values)))


def numpy_csv(path: Path) -> str:
    np.savetxt(path, np.column_stack([LABELS, VALUES]), delimiter=",")
    return "csv"


def pandas_csv(path: Path) -> str:
    table = pd.DataFrame(VALUES)
    table.insert(0, "label", LABELS)
    table.to_csv(path, header=False, index=False)
    return "csv"


def sklearn_libsvm(path: Path) -> str:
    queries = np.arange(ROWS) // 5
    # Without a comment: XGBoost cannot read the lines that it would put first.
    dump_svmlight_file(VALUES, LABELS, str(path), query_id=queries)
    return "text/libsvm"


@pytest.mark.parametrize("write", [numpy_csv, pandas_csv, sklearn_libsvm])
def test_files_of_other_libraries(tmp_path: Path, write: Callable[[Path], str]) -> None:
    path = tmp_path / "rows"
    trial, model = explain(tmp_path / "run", (path, write(path)))
    # A file of libsvm leaves zeros out, which XGBoost takes for missing.
    values = np.where(VALUES == 0, np.nan, VALUES) if write is sklearn_libsvm else VALUES
    assert_explains(trial, model, xgboost.DMatrix(values, LABELS))


def test_the_name_of_a_file_does_not_decide_what_it_is(tmp_path: Path) -> None:
    # As in XGBoost: the content type is given, not guessed.
    path = write_libsvm(tmp_path / "rows.csv")
    trial, model = explain(tmp_path / "run", (path, "libsvm"))
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


@pytest.mark.parametrize("samples", [ROWS, 7])
@pytest.mark.parametrize("content_type", ["csv", "libsvm"])
def test_columns_of_a_file_get_the_feature_names_of_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content_type: str, samples: int
) -> None:
    place = (written(tmp_path / "rows", content_type), content_type)
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=EXPLAINED, train_data=place,
        validation_data=place, shap_samples=samples,
    )  # fmt: skip
    # One file for models that call them differently.
    chosen = np.linspace(0, ROWS - 1, samples).astype(int)
    for number, names in enumerate([list("abcde"), None, list("vwxyz")]):
        matrix = xgboost.DMatrix(VALUES, LABELS, feature_names=names)
        model = training(hook, 2, matrix)
        trial, step = smd.create_trial(tmp_path / "run"), 2 * number + 1
        saved = trial.tensor("predictions").value(step)
        np.testing.assert_array_equal(saved, model.predict(matrix))
        expected = model.predict(matrix, pred_contribs=True)[chosen]
        for place_of, name in enumerate(names or ["f0", "f1", "f2", "f3", "f4"]):
            column = trial.tensor(f"full_shap/{name}").value(step)
            np.testing.assert_array_equal(column, expected[:, place_of])
    hook.close()
    assert warnings_in(caplog) == []


# ---- directories


def test_a_directory_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for part in range(3):
        rows = slice(part * 20, (part + 1) * 20)
        write_csv(folder / f"part-{part}", VALUES[rows], LABELS[rows])
    trial, model = explain(tmp_path / "run", (folder, "csv"))
    # In which order XGBoost takes files is its own affair, but labels and predictions have one.
    saved = np.stack([trial.tensor(name).value(3) for name in ("labels", "predictions")], axis=1)
    expected = np.stack([LABELS, model.predict(xgboost.DMatrix(VALUES))], axis=1)
    assert sorted(saved.tolist()) == sorted(expected.astype(np.float32).tolist())
    contributions = model.predict(xgboost.DMatrix(VALUES), pred_contribs=True)
    shap = trial.tensor("full_shap").value(3)
    assert sorted(shap.tolist()) == sorted(contributions.tolist())
    # Rows of one file stay together.
    parts = sorted(tuple(LABELS[part * 20 : (part + 1) * 20]) for part in range(3))
    found = trial.tensor("labels").value(3).astype(int)
    assert sorted(tuple(found[part * 20 : (part + 1) * 20]) for part in range(3)) == parts


def test_empty_files_and_folders_beside_the_rows_do_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    (folder / "more").mkdir(parents=True)
    write_csv(folder / "part-00000.csv")
    # What Spark leaves there; it comes before the rows.
    (folder / "_SUCCESS").write_text("")
    trial, model = explain(tmp_path / "run", (f"{folder}/", "csv"))
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


def test_a_link_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write_csv(tmp_path / "rows.csv"))
    trial, model = explain(tmp_path / "run", (tmp_path / "link", "csv"))
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


# ---- paths

PATHS = [
    "a b.csv", "a  b/c d.csv", " begins.csv", "ends ", "a?b.csv", "a?format=libsvm", "a#cache",
    "a;b.csv", "a;b/c.csv", "a&b=c.csv", "a:b.csv", "s3:x.csv", "jürgen/日本.csv", "a%20b.csv",
    "a*b[1].csv", "a'b\".csv", "a\\b.csv", "a\nb.csv", "-x.csv", "a,b.csv", "~x.csv", "$HOME.csv",
    "(a.csv",
]  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_path_may_contain_any_character(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    trial, model = explain(tmp_path / "run", (write_csv(path), "csv"), rounds=1)
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))
    assert warnings_in(caplog) == []


@pytest.mark.parametrize("name", ["a?b.csv", "a;b.csv", "é.csv"])
def test_link_to_a_path_with_special_characters(tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(write_csv(tmp_path / name))
    trial, model = explain(tmp_path / "run", (tmp_path / "link", "csv"), rounds=1)
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


@pytest.mark.parametrize("content_type", ["csv", "libsvm"])
def test_a_file_with_a_plain_path_is_read_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content_type: str
) -> None:
    # Files may be large: there need be no room for another copy, nor a place for a link.
    path = written(tmp_path / "rows", content_type)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    trial, model = explain(tmp_path / "run", (path, content_type), rounds=1)
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


def test_a_directory_and_files_with_unusual_names(tmp_path: Path) -> None:
    folder = tmp_path / "a;b é"
    folder.mkdir()
    write_csv(folder / "ü?;#.csv")
    trial, model = explain(tmp_path / "run", (folder, "csv"))
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


def test_no_files_are_left_next_to_the_data(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    path = write_csv(folder / "a;é.csv")
    before = path.read_bytes()
    explain(tmp_path / "run", (path, "csv"))
    assert [each.name for each in folder.iterdir()] == ["a;é.csv"]
    assert path.read_bytes() == before
    assert path.stat().st_nlink == 1


def test_a_path_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_csv(tmp_path / "rows.csv")
    for number, path in enumerate(["~/rows.csv", Path("~/rows.csv")]):
        trial, model = explain(tmp_path / f"{number}", (path, "csv"))
        assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


def test_a_relative_path_is_what_it_was_when_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    write_csv(here / "rows.csv")
    # Another file of that name, of which nothing must be read.
    write_csv(there / "rows.csv", VALUES[:10], LABELS[:10])
    monkeypatch.chdir(here)
    place = ("rows.csv", "csv")
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=EXPLAINED, train_data=place,
        validation_data=place,
    )  # fmt: skip
    monkeypatch.chdir(there)
    model = training(hook)
    hook.close()
    assert_explains(smd.create_trial(tmp_path / "run"), model, xgboost.DMatrix(VALUES, LABELS))


class OwnPath(os.PathLike[str]):
    """What a user's own library may have for paths."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __fspath__(self) -> str:
        return str(self._path)


def test_path_in_another_home_directory(tmp_path: Path) -> None:
    path = OwnPath(write_csv(tmp_path / "rows.csv"))
    trial, model = explain(tmp_path / "run", (path, "csv"))
    assert_explains(trial, model, xgboost.DMatrix(VALUES, LABELS))


# ---- when a file is read


def test_unused_file_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = (write_csv(tmp_path / "rows.csv"), "csv")
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=["trees", "feature_importance"],
        train_data=place, validation_data=place,
    )  # fmt: skip
    place[0].unlink()
    training(hook)
    hook.close()
    assert warnings_in(caplog) == []
    assert smd.create_trial(tmp_path / "run").tensor("trees/Gain").steps() == [0, 1, 2, 3]


def test_file_is_read_at_first_use(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    write_csv(path, VALUES[:10], LABELS[:10])
    hook = smd.Hook(
        tmp_path / "run", save_config=smd.SaveConfig(save_interval=1, start_step=2),
        include_collections=["labels", "predictions"], validation_data=(path, "csv"),
    )  # fmt: skip
    # Between the rounds 0 and 1 nothing has been read.
    training(hook, callbacks=[Between(lambda at: write_csv(path) if at == 0 else None)])
    hook.close()
    assert len(smd.create_trial(tmp_path / "run").tensor("labels").value(2)) == ROWS


def test_a_file_is_read_once(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "rows.csv")
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=EXPLAINED,
        train_data=(path, "csv"), validation_data=(path, "csv"),
    )  # fmt: skip

    def change(ended: int) -> None:
        if ended == 0:
            write_csv(path, -VALUES[:10], LABELS[:10])
        if ended == 1:
            path.unlink()

    # The callback before the hook: the file is changed before the hook has seen round 0.
    model = xgboost.train(
        data.BINARY, xgboost.DMatrix(VALUES, LABELS), ROUNDS, callbacks=[hook, Between(change)]
    )
    # Also in the next training.
    second = training(hook)
    hook.close()
    trial = smd.create_trial(tmp_path / "run")
    matrix = xgboost.DMatrix(VALUES, LABELS)
    np.testing.assert_array_equal(trial.tensor("predictions").value(3), model.predict(matrix))
    assert_explains(trial, second, matrix)
    assert trial.tensor("labels").steps() == list(range(2 * ROUNDS))


def test_file_set_again_is_read_again(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "rows.csv")
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=["labels"],
        validation_data=(path, "csv"),
    )  # fmt: skip
    training(hook, 1)
    write_csv(path, VALUES[:10], LABELS[:10])
    training(hook, 1)
    hook.validation_data = (path, "csv")
    training(hook, 1)
    hook.close()
    labels = smd.create_trial(tmp_path / "run").tensor("labels")
    assert [len(labels.value(step)) for step in labels.steps()] == [ROWS, ROWS, 10]


def test_deleted_file_is_logged_once_and_the_rest_is_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_csv(tmp_path / "rows.csv")
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=["labels", "trees"],
        validation_data=(path, "csv"),
    )  # fmt: skip
    path.unlink()
    model = training(hook, 10)
    hook.close()
    (message,) = warnings_in(caplog)
    assert message.startswith("labels cannot be saved: validation_data")
    assert str(path) in message
    trial = smd.create_trial(tmp_path / "run")
    assert trial.tensor("trees/Gain").steps() == list(range(10))
    assert model.save_raw() == training(None, 10).save_raw()


# ---- what is set later


def test_inputs_set_after_creation(tmp_path: Path) -> None:
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=[*EXPLAINED, "hyperparameters"]
    )
    hook.train_data = (write_csv(tmp_path / "rows.csv"), "csv")
    hook.validation_data = xgboost.DMatrix(VALUES, LABELS)
    hook.hyperparameters = {"eta": 0.5}
    hook.shap_samples = 9
    model = training(hook)
    hook.close()
    trial = smd.create_trial(tmp_path / "run")
    chosen = np.linspace(0, ROWS - 1, 9).astype(int)
    expected = model.predict(xgboost.DMatrix(VALUES), pred_contribs=True)[chosen]
    np.testing.assert_array_equal(trial.tensor("full_shap").value(3), expected)
    np.testing.assert_array_equal(trial.tensor("labels").value(3), LABELS)
    assert trial.tensor("hyperparameters/eta").value(3).tolist() == [0.5]


def test_inputs_set_between_two_training_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=[*EXPLAINED, "hyperparameters"]
    )
    training(hook)
    # Two of each: one for what needs train_data, one for what needs validation_data, and one.
    assert len(warnings_in(caplog)) == 5
    hook.train_data = hook.validation_data = xgboost.DMatrix(VALUES, LABELS)
    hook.hyperparameters = {"eta": 0.5}
    model = training(hook)
    hook.hyperparameters = {"eta": 0.25, "depth": 3}
    hook.shap_samples = 7
    training(hook)
    hook.close()
    assert len(warnings_in(caplog)) == 5
    trial = smd.create_trial(tmp_path / "run")
    labels, eta = trial.tensor("labels"), trial.tensor("hyperparameters/eta")
    assert labels.steps() == eta.steps() == list(range(ROUNDS, 3 * ROUNDS))
    assert [eta.value(step)[0] for step in eta.steps()] == [0.5] * ROUNDS + [0.25] * ROUNDS
    assert trial.tensor("hyperparameters/depth").steps() == list(range(2 * ROUNDS, 3 * ROUNDS))
    shap = trial.tensor("full_shap")
    assert [len(shap.value(step)) for step in shap.steps()] == [ROWS] * ROUNDS + [7] * ROUNDS
    np.testing.assert_array_equal(
        trial.tensor("predictions").value(2 * ROUNDS - 1),
        model.predict(xgboost.DMatrix(VALUES)),
    )


@pytest.mark.parametrize("first", [True, False], ids=["before the hook", "after the hook"])
def test_inputs_set_in_the_middle_of_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: bool
) -> None:
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=[*EXPLAINED, "hyperparameters"]
    )
    few = xgboost.DMatrix(VALUES[:10], LABELS[:10])
    # From these rounds on, as a callback that comes before the hook sees it.
    changes: dict[int, dict[str, Any]] = {
        2: {"validation_data": few, "train_data": few, "hyperparameters": {"eta": 1}},
        4: {"validation_data": None, "train_data": None, "hyperparameters": None},
        6: {
            "validation_data": (write_csv(tmp_path / "rows.csv"), "csv"),
            "train_data": (write_libsvm(tmp_path / "rows.libsvm"), None),
            "hyperparameters": {"eta": 2, "depth": 3},
        },
        7: {"shap_samples": 7},
    }

    def change(ended: int) -> None:
        for name, value in changes.get(ended if first else ended + 1, {}).items():
            setattr(hook, name, value)

    callbacks = [Between(change), hook] if first else [hook, Between(change)]
    matrix = xgboost.DMatrix(VALUES, LABELS)
    model = xgboost.train(data.BINARY, matrix, 9, evals=[(matrix, "train")], callbacks=callbacks,
                          verbose_eval=False)  # fmt: skip
    hook.close()
    trial = smd.create_trial(tmp_path / "run")

    def sizes(name: str) -> dict[int, int]:
        tensor = trial.tensor(name)
        return {step: len(tensor.value(step)) for step in tensor.steps()}

    assert sizes("labels") == sizes("predictions") == {2: 10, 3: 10, 6: 60, 7: 60, 8: 60}
    assert sizes("full_shap") == {2: 10, 3: 10, 6: 60, 7: 7, 8: 7}
    assert list(trial.tensor("average_shap/f0").steps()) == [2, 3, 6, 7, 8]
    eta = trial.tensor("hyperparameters/eta")
    assert {step: eta.value(step)[0] for step in eta.steps()} == {2: 1, 3: 1, 6: 2, 7: 2, 8: 2}
    assert trial.tensor("hyperparameters/depth").steps() == [6, 7, 8]
    assert trial.tensor("train-logloss").steps() == list(range(9))
    # That it was missing is said once, although it was twice.
    assert len(warnings_in(caplog)) == 5
    assert model.save_raw() == training(None, 9).save_raw()


@pytest.mark.parametrize(
    ("name", "value", "tensor"),
    [
        ("train_data", xgboost.DMatrix(VALUES[:10], LABELS[:10]), "full_shap"),
        ("validation_data", xgboost.DMatrix(VALUES[:10], LABELS[:10]), "predictions"),
        ("hyperparameters", {"x": list(range(10))}, "hyperparameters/x"),
        ("shap_samples", 10, "full_shap"),
    ],
)
def test_one_input_set_in_the_middle_of_training(
    tmp_path: Path, name: str, value: Any, tensor: str
) -> None:
    matrix = xgboost.DMatrix(VALUES, LABELS)
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=[*EXPLAINED, "hyperparameters"],
        train_data=matrix, validation_data=matrix, hyperparameters={"x": list(range(ROWS))},
    )  # fmt: skip

    def change(ended: int) -> None:
        if ended == 1:
            setattr(hook, name, value)

    training(hook, callbacks=[Between(change)])
    hook.close()
    saved = smd.create_trial(tmp_path / "run").tensor(tensor)
    # The callback comes before the hook.
    assert [len(saved.value(step)) for step in range(ROUNDS)] == [ROWS, 10, 10, 10]


def test_invalid_input_does_not_replace_the_previous_one(tmp_path: Path) -> None:
    matrix = xgboost.DMatrix(VALUES, LABELS)
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=EXPLAINED, train_data=matrix,
        validation_data=matrix, hyperparameters={"a": 1}, shap_samples=50,
    )  # fmt: skip
    wrong = {"train_data": 5, "validation_data": ("none", "csv"), "hyperparameters": 5,
             "shap_samples": 0}  # fmt: skip
    for name, value in wrong.items():
        before = getattr(hook, name)
        with pytest.raises((ValueError, TypeError), match=name):
            setattr(hook, name, value)
        assert getattr(hook, name) is before
    training(hook)
    hook.close()
    assert smd.create_trial(tmp_path / "run").tensor("labels").steps() == list(range(ROUNDS))


# ---- scripts


def test_a_file_for_an_estimator_and_for_cross_validation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = (write_csv(tmp_path / "rows.csv"), "csv")
    hook = smd.Hook(
        tmp_path / "run", save_config=EVERY, include_collections=EXPLAINED, train_data=place,
        validation_data=place,
    )  # fmt: skip
    estimator = xgboost.XGBClassifier(
        n_estimators=3, max_depth=3, n_jobs=1, random_state=0, callbacks=[hook]
    )
    estimator.fit(VALUES, LABELS, eval_set=[(VALUES, LABELS)], verbose=False)
    model = estimator.get_booster()
    assert_explains(smd.create_trial(tmp_path / "run"), model, xgboost.DMatrix(VALUES, LABELS))
    caplog.clear()
    xgboost.cv(data.BINARY, xgboost.DMatrix(VALUES, LABELS), 3, nfold=3, callbacks=[hook])
    hook.close()
    # Several models have no single answer; labels are the same for all.
    assert sorted(each.split(" ")[0] for each in warnings_in(caplog)) == [
        "average_shap", "full_shap", "predictions",
    ]  # fmt: skip
    assert smd.create_trial(tmp_path / "run").tensor("labels").steps() == list(range(6))


# ---- any text at all


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


CELLS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(-1e6, 1e6, width=32).map(repr),
    st.sampled_from(["", " ", "nan", "NaN", "NA", "inf", "-inf", "1_0", "0x1", "+1", ".5", "5."]),
    st.sampled_from(
        ["1e3", "1E-2", "1e", "e1", "--1", "1.2.3", "a", '"1"', "1 2", "\u0661", "1:2"]
    ),
    st.text(alphabet=string.printable, max_size=4),
)


def accepted(place: Path, content_type: str) -> bool:
    """Whether a hook takes the file; it is refused in one way only."""
    try:
        hook = smd.Hook(place.parent / "run", validation_data=(place, content_type))
    except SMDebugValueError:
        return False
    hook.close()
    smd.del_hook()
    return True


def read(place: Path, parameters: str) -> tuple[list[float], list[list[float]]]:
    """What XGBoost reads of a file: the labels, and the features with NaN for what is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix = xgboost.DMatrix(f"{place}?{parameters}")
    cells = matrix.get_data()
    dense = np.full((matrix.num_row(), matrix.num_col()), np.nan, np.float32)
    rows = np.repeat(np.arange(matrix.num_row()), np.diff(cells.indptr))
    dense[rows, cells.indices] = cells.data
    return matrix.get_label().tolist(), dense.tolist()


def near(found: list[float], expected: list[float]) -> bool:
    # XGBoost's reading is off by a rounding error at times.
    return len(found) == len(expected) and np.allclose(
        found, expected, rtol=1e-6, atol=1e-30, equal_nan=True
    )


@settings(max_examples=150, deadline=None)
@given(cells=st.lists(CELLS, min_size=1, max_size=5))
@example(cells=["1", "1_000", "3"])
@example(cells=["", "2", "3"])
@example(cells=["1", "\u0661\u0662", "3"])
@example(cells=["# label", "a", "b"])
@example(cells=["1", *["1234"] * 30, "setosa"])
@example(cells=["1", *["  "] * 30, "setosa"])
@example(cells=["1"])
@example(cells=["1", "2", " "])
def test_accepted_csv_is_read_correctly(folder: Path, cells: list[str]) -> None:
    place = folder / "rows.csv"
    # A row of known numbers as well: whatever the first one is, XGBoost has something to read.
    known = ",".join(["1"] * max(2, len(cells)))
    text = f"{','.join(cells)}\n{known}\n"
    place.write_text(text, encoding="utf-8", newline="")
    if not accepted(place, "csv"):
        return
    try:
        labels, rows = read(place, "format=csv&label_column=0")
    except xgboost.core.XGBoostError:
        # Nothing is read, and that is said in training.
        return
    line = next(line for line in re.split(r"[\r\n]", text) if line.strip())
    label, *said = [math.nan if cell.strip() in ("", "NA") else float(cell)
                    for cell in line.split(",")]  # fmt: skip
    assert labels[0] == pytest.approx(label, rel=1e-6)
    # Cells at the end that are missing may be missing from the matrix, too.
    width = max(len(rows[0]), len(said))
    gaps = [math.nan] * width
    assert near([*rows[0], *gaps][:width], [*said, *gaps][:width])


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.lists(st.one_of(st.integers(-999, 999), st.floats(-1e6, 1e6, width=32)), min_size=3,
                 max_size=3),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_any_numeric_csv_is_accepted(folder: Path, rows: list[list[float]]) -> None:
    place = folder / "rows.csv"
    place.write_text("".join(",".join(map(repr, row)) + "\n" for row in rows))
    assert accepted(place, "csv")
    labels, found = read(place, "format=csv&label_column=0")
    assert near(labels, [row[0] for row in rows])
    for cells, row in zip(found, rows, strict=True):
        assert near(cells, row[1:])


PARTS = st.one_of(
    st.tuples(st.integers(0, 5), st.integers(-99, 99)).map(lambda pair: f"{pair[0]}:{pair[1]}"),
    st.tuples(st.integers(0, 5), st.floats(-1e3, 1e3, width=32)).map(lambda p: f"{p[0]}:{p[1]}"),
    st.sampled_from(["qid:1", "qid:x", "1", "1:", ":1", "1:2:3", "-1:2", "1.5:2", "1:nan", "a:b"]),
    st.sampled_from(["#", "# 1:2", "1_0:2", "0x1:2", "1,2", "1:1e2", "", "1:inf"]),
)


@settings(max_examples=150, deadline=None)
@given(
    label=st.sampled_from(["1", "0", "+1", "-1", "0.5", "1:2", "1:0.5", "1:2:3", "a", "", "1,2"]),
    parts=st.lists(PARTS, max_size=5),
    space=st.sampled_from([" ", "  ", "\t"]),
)
@example(label="1", parts=["0", "2"], space=" ")
@example(label="1:", parts=["0:0"], space=" ")
@example(label="1", parts=[*[f"{at}:1234" for at in range(30)], "x"], space="  ")
def test_accepted_libsvm_is_read_correctly(
    folder: Path, label: str, parts: list[str], space: str
) -> None:
    place = folder / "rows.libsvm"
    line = space.join([label, *parts])
    # With a query where the first row has one: either all rows have one or none has.
    query = "qid:1 " if "qid" in line.partition("#")[0] else ""
    place.write_text(f"{line}\n0 {query}0:1 5:1\n")
    if not accepted(place, "libsvm"):
        return
    try:
        labels, rows = read(place, "format=libsvm")
    except xgboost.core.XGBoostError:
        # Nothing is read, and that is said in training: of rows only some have a weight.
        return
    text = line.partition("#")[0].split()
    if not text:
        assert labels == [0.0]
        return
    assert labels[0] == float(text[0].partition(":")[0])
    pairs = [part.split(":") for part in text[1:] if not part.startswith("qid:")]
    # Of a feature that is there twice either may be taken.
    once = {int(at): float(v) for at, v in pairs}
    several = {at for at in once if sum(int(other) == at for other, _ in pairs) > 1}
    for at, found in enumerate(rows[0]):
        if at not in several:
            assert near([found], [once.get(at, math.nan)])


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(st.integers(0, 9), st.floats(-1e3, 1e3, width=32), max_size=6),
        min_size=1, max_size=4,
    ),
    weights=st.booleans(), queries=st.booleans(), comments=st.booleans(),
)  # fmt: skip
def test_any_numeric_libsvm_is_accepted(
    folder: Path, rows: list[dict[int, float]], weights: bool, queries: bool, comments: bool
) -> None:
    place = folder / "rows.libsvm"
    lines = ["# rows"] if comments else []
    for number, row in enumerate(rows):
        label = f"{number}:0.5" if weights else str(number)
        query = ["qid:1"] if queries else []
        pairs = [f"{at}:{value!r}" for at, value in sorted(row.items())]
        lines.append(" ".join([label, *query, *pairs, *(["# x"] if comments else [])]))
    place.write_text("\n".join(lines) + "\n")
    assert accepted(place, "libsvm")
    labels, found = read(place, "format=libsvm")
    assert labels == list(range(len(rows)))
    for cells, row in zip(found, rows, strict=True):
        assert near(cells, [row.get(at, math.nan) for at in range(len(cells))])
