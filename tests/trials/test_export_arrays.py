"""Raw tensors as files of arrays: what safetensors and numpy read of them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.trials.mixed_run import STEPS, WORKERS, Truth

from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing import make_run
from smdebug.trials import create_trial, selection
from smdebug.trials.export.arrays import escaped_name, export_npz, export_safetensors
from smdebug.trials.selection import Selection
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.reductions import Array

SHORT = {
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


def chosen(mixed: Path, **options: Any) -> Selection:
    return Selection(create_trial(str(mixed)), **options)


def read_safetensors(data: bytes) -> dict[str, Array]:
    """With the library's own decoder; numpy has no names for short floats."""
    found = {}
    library: Any = safetensors
    for name, view in library.deserialize(data):
        kind = SHORT.get(view["dtype"]) or safetensors.numpy._getdtype(view["dtype"])
        found[name] = np.frombuffer(view["data"], kind).reshape(view["shape"])
    return found


def read_npz(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """The tensors by the names they had, and what the file says of itself."""
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        found = {name: stored[name] for name in stored.files}
    about: dict[str, Any] = json.loads(str(found.pop("smdebug")))
    names = about["escaped"]
    return {names.get(key, key): value for key, value in found.items()}, about


def wanted(truth: Truth, worker: str, step: int) -> dict[str, Array]:
    return {
        name: entry.value
        for (who, when, name), entry in truth.items()
        if (who, when) == (worker, step) and entry.value is not None
    }


def is_same(found: Array, expected: Array) -> bool:
    return (found.dtype, found.shape, found.tobytes()) == (
        expected.dtype, expected.shape, expected.tobytes(),
    )  # fmt: skip


def is_classic(mixed: Path) -> bool:
    return not any(mixed.rglob("*.parquet"))


def in_run(mixed: Path, value: Array) -> Array:
    """A value as the run has it: format v1 has no short floats."""
    short = value.dtype in [np.dtype(each) for each in SHORT.values()]
    return value.astype(np.float32) if short and is_classic(mixed) else value


def files_of(out: Path) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}


def expected_files(ending: str) -> set[str]:
    folders = {"worker_0", "host%20b%2F1"}
    return {
        f"{'eval' if step == 2 else 'train'}/{folder}/step_{step:012d}{ending}"
        for step in STEPS
        for folder in folders
    }


def test_safetensors(mixed: Path, truth: Truth, tmp_path: Path) -> None:
    done = export_safetensors(chosen(mixed), str(tmp_path / "out"))
    assert files_of(tmp_path / "out") == expected_files(".safetensors")
    assert (done.files, done.steps) == (len(STEPS) * len(WORKERS), len(STEPS))
    # Named, with the reason, and whatever the version has no type for.
    assert done.left_out["text"] == "safetensors has no str"
    assert done.left_out["complex/c128"] == "safetensors has no complex128"
    assert done.left_out.keys() <= {"text", "complex/c64", "complex/c128"}
    count = 0
    for worker, folder in ((WORKERS[0], "worker_0"), (WORKERS[1], "host%20b%2F1")):
        for step in STEPS:
            mode = "eval" if step == 2 else "train"
            path = tmp_path / "out" / mode / folder / f"step_{step:012d}.safetensors"
            found = read_safetensors(path.read_bytes())
            expected = wanted(truth, worker, step)
            assert found.keys() == expected.keys() - done.left_out.keys()
            assert all(is_same(found[name], in_run(mixed, expected[name])) for name in found)
            count += len(found)
            with safetensors.safe_open(path, "np") as file:
                assert file.metadata() == {
                    "run": "run", "worker": worker, "mode": mode.upper(), "step": str(step),
                    "mode_step": str(0 if step == 2 else step),
                }  # fmt: skip
    assert done.rows == count


def test_npz(mixed: Path, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_BYTES", 100)
    done = export_npz(chosen(mixed), str(tmp_path / "out"))
    assert files_of(tmp_path / "out") == expected_files(".npz")
    assert not done.left_out
    short = {"short/bfloat16", "short/float8_e4m3fn", "short/float8_e5m2"}
    assert done.widened.keys() == (set() if is_classic(mixed) else short)
    for worker, folder in ((WORKERS[0], "worker_0"), (WORKERS[1], "host%20b%2F1")):
        for step in STEPS:
            mode = "eval" if step == 2 else "train"
            path = tmp_path / "out" / mode / folder / f"step_{step:012d}.npz"
            found, about = read_npz(path.read_bytes())
            expected = wanted(truth, worker, step)
            assert found.keys() == expected.keys()
            for name, value in found.items():
                truth_value = expected[name]
                if name in short:
                    truth_value = truth_value.astype(np.float32)
                assert is_same(value, truth_value), name
            assert about["widened"].keys() == done.widened.keys()
            assert (about["run"], about["worker"], about["step"]) == ("run", worker, step)
            assert (about["mode"], about["mode_step"]) == (mode.upper(), 0 if step == 2 else step)


def test_folders_only_where_there_are_several(mixed: Path, tmp_path: Path) -> None:
    one = {"tensor": "^loss$", "steps": (1, 3)}
    for options, expected in (
        ({"worker": WORKERS[0], "mode": ModeKeys.TRAIN}, {"step_000000000001.npz"}),
        ({"worker": WORKERS[0]}, {"train/step_000000000001.npz", "eval/step_000000000002.npz"}),
        ({"mode": ModeKeys.EVAL},
         {"worker_0/step_000000000002.npz", "host%20b%2F1/step_000000000002.npz"}),
    ):  # fmt: skip
        export_npz(chosen(mixed, **one, **options), str(tmp_path / "out"), force=True)
        assert files_of(tmp_path / "out") == expected


@pytest.mark.parametrize("export", [export_safetensors, export_npz])
def test_what_is_refused(mixed: Path, tmp_path: Path, export: Callable[..., Any]) -> None:
    with pytest.raises(SMDebugValueError, match="must be raw tensors to write"):
        export(chosen(mixed, tensor="^reduced/only$"), str(tmp_path / "none"))
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(SMDebugValueError, match="got the file"):
        export(chosen(mixed), str(tmp_path / "file"), force=True)
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(SMDebugValueError, match=r"holds mine\.txt"):
        export(chosen(mixed), str(out))
    export(chosen(mixed, tensor="^loss$"), str(out), force=True)
    before = files_of(out)
    export(chosen(mixed, tensor="^loss$", steps=(0, 1)), str(out), force=True)
    # What is of this kind was replaced; what is not was left alone.
    assert len(files_of(out)) < len(before)
    assert (out / "mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("export", [export_safetensors, export_npz])
def test_only_files_of_an_export_are_replaced(
    mixed: Path, tmp_path: Path, export: Callable[..., Any]
) -> None:
    ending, out = "." + export.__name__.removeprefix("export_"), tmp_path / "out"
    other = "step_000000000999" + ending
    mine = {
        f"model{ending}", f"step_12{ending}", f"checkpoints/{other}", f"train/epoch/{other}",
        f"a/train/{other}", f"my_{other}", f"worker_0/train/{other}", f"{other}.bak",
    }  # fmt: skip
    old = {other, f"train/{other}", f"eval/worker_0/{other}", f"worker_17/{other}"}
    old |= {f"train/host%20b%2F1/{other}"}
    for name in mine | old:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine", encoding="utf-8")
    part = {"tensor": "^loss$", "worker": WORKERS[0], "steps": (0, 2)}
    export(chosen(mixed, **part, mode=ModeKeys.TRAIN), str(out), force=True)
    assert files_of(out) == mine | {f"step_{step:012d}{ending}" for step in (0, 1)}


@pytest.mark.parametrize("export", [export_safetensors, export_npz])
def test_runs_are_left_alone(mixed: Path, tmp_path: Path, export: Callable[..., Any]) -> None:
    ending, one = "." + export.__name__.removeprefix("export_"), chosen(mixed, tensor="^loss$")
    make_run(tmp_path / "runs/deep/other", range(2))
    (tmp_path / "runs" / f"step_000000000999{ending}").write_text("mine", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "runs/deep/other")
    before = files_of(tmp_path)
    for place, said in (
        ("runs", "holds the run deep/other"),
        ("runs/deep/other", "which is one"),
        ("runs/deep/other/a/b", "lies in the run .*deep/other;"),
        ("link", "which is one"),
        ("link/steps", "lies in the run .*deep/other;"),
    ):
        with pytest.raises(SMDebugValueError, match=said):
            export(one, str(tmp_path / place), force=True)
    with pytest.raises(SMDebugValueError, match="must lie apart from the run, got"):
        export(one, str(mixed / "steps"))
    assert not (mixed / "steps").exists()
    assert files_of(tmp_path) == before


def test_runs_in_stores_are_left_alone(mixed: Path, bucket: str) -> None:
    one = chosen(mixed, tensor="^loss$", steps=(0, 1), mode=ModeKeys.TRAIN, worker=WORKERS[0])
    place = f"s3://{bucket}/apart_{mixed.parent.name}"
    make_run(f"{place}/jobs/other", range(2))
    # Folders that are called as those of a run are, and are none.
    open_store(place).write("index/of/books", [b"mine"])
    before = set(open_store(place).list())
    for folder, said in (
        ("jobs", "holds the run other"),
        ("jobs/other", "which is one"),
        ("jobs/other/a/b", "lies in the run s3://.*/jobs/other;"),
    ):
        with pytest.raises(SMDebugValueError, match=said):
            export_npz(one, f"{place}/{folder}", force=True)
    assert set(open_store(place).list()) == before
    export_npz(one, f"{place}/steps")
    export_npz(one, f"{place}/steps", force=True)
    assert list(open_store(f"{place}/steps").list()) == ["step_000000000000.npz"]
    same = Selection(create_trial(f"{place}/jobs/other"))
    with pytest.raises(SMDebugValueError, match="must lie apart from the run, got"):
        export_npz(same, place.replace("s3:", "s3a:") + "/jobs/other/steps")


def test_without_the_library(mixed: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['safetensors'] = None; from smdebug.cli.main import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "export", str(mixed), "out", "--format", "safetensors"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "pip install 'tornasole[export]'" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


HOSTILE = [
    "../../etc/passwd", "/etc/passwd", "a/../b", "..", ".", "a//b", "a/", "a\\b", "C:evil", "a\0b",
    "smdebug", "escaped/x", "a", "a.npy", "x" * 5000, "file", "allow_pickle", "\x1b[2J",
    "ok/name:0",
]  # fmt: skip


def test_hostile_names(tmp_path: Path) -> None:
    entries = [Entry(name, np.full(3, place, np.int32)) for place, name in enumerate(HOSTILE)]
    make_run(
        tmp_path / "run",
        [7],
        data=lambda worker, step: StepBatch(step, ModeKeys.TRAIN, step, entries),
    )
    export_npz(chosen(tmp_path / "run"), str(tmp_path / "out"))
    path = tmp_path / "out" / "step_000000000007.npz"
    found, about = read_npz(path.read_bytes())
    assert {name: value.tolist() for name, value in found.items()} == {
        name: [place] * 3 for place, name in enumerate(HOSTILE)
    }
    assert set(HOSTILE) - set(about["escaped"].values()) == {
        "a",
        "file",
        "allow_pickle",
        "ok/name:0",
    }
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            parts = Path(name).parts
            assert not name.startswith("/")
            assert "\\" not in name
            assert ".." not in parts
        archive.extractall(tmp_path / "unzipped")
        inside = {
            p.relative_to(tmp_path / "unzipped").as_posix()
            for p in (tmp_path / "unzipped").rglob("*.npy")
        }
        assert inside == set(archive.namelist())
    export_safetensors(chosen(tmp_path / "run"), str(tmp_path / "st"))
    data = (tmp_path / "st" / "step_000000000007.safetensors").read_bytes()
    assert {name: value.tolist() for name, value in read_safetensors(data).items()} == {
        name: [place] * 3 for place, name in enumerate(HOSTILE)
    }


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
KINDS = st.one_of(
    arrays.boolean_dtypes(), arrays.integer_dtypes(endianness="<"),
    arrays.unsigned_integer_dtypes(endianness="<"),
    arrays.floating_dtypes(sizes=(16, 32, 64), endianness="<"),
    arrays.complex_number_dtypes(sizes=(64, 128), endianness="<"),
    st.sampled_from([np.dtype(each) for each in SHORT.values()]),
)  # fmt: skip


@st.composite
def tensors(draw: Any) -> Array:
    dtype = draw(KINDS)
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype.kind == "b":
        data = bytes(byte & 1 for byte in data)
    value: Array = np.frombuffer(data, dtype).reshape(shape)
    return value


def export_any(
    saved: dict[str, Array], export: Callable[..., Any], ending: str
) -> tuple[bytes, Any]:
    store = MemoryStore()
    # One that every format can hold, so that there is a file.
    entries = [Entry(name, value) for name, value in saved.items()]
    make_run(store, [0], data={("worker_0", 0): StepBatch(0, ModeKeys.TRAIN, 0, entries)})
    part = Selection(Trial("memory://source", store=store))
    done = export(part, "memory://any-arrays", force=True)
    return bytes(open_store("memory://any-arrays").read(f"step_{0:012d}{ending}")), done


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, tensors(), max_size=4))
def test_any_name_and_tensor_npz(saved: dict[str, Array]) -> None:
    saved = {**saved, "one": np.ones(2)}
    data, done = export_any(saved, export_npz, ".npz")
    found, about = read_npz(data)
    assert found.keys() == saved.keys()
    for name, value in saved.items():
        if value.dtype.kind == "V" or value.dtype.name in done.widened.values():
            assert about["widened"][name] == value.dtype.name
            np.testing.assert_array_equal(found[name], value.astype(np.float32))
        else:
            assert is_same(found[name], value)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.one_of(NAMES, st.just("__metadata__")), tensors(), max_size=4))
def test_any_name_and_tensor_safetensors(saved: dict[str, Array]) -> None:
    saved = {**saved, "one": np.ones(2)}
    data, done = export_any(saved, export_safetensors, ".safetensors")
    found = read_safetensors(data)
    assert found.keys() == saved.keys() - done.left_out.keys()
    for name in done.left_out:
        assert name == "__metadata__" or saved[name].dtype.kind == "c"
    assert all(is_same(found[name], saved[name]) for name in found)


def test_names_are_escaped_the_same_way_in_every_file() -> None:
    assert escaped_name("../x") == escaped_name("../x") != escaped_name("../y")
