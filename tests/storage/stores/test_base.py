"""From a path to a store, and which keys a store takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.storage.stores.base import Store, check_key, cut_range, open_store
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.stores.object_store import ObjectStore


def test_local_paths(tmp_path: Path) -> None:
    for path in (str(tmp_path), f"file://{tmp_path}", f"FILE://{tmp_path}", f"  {tmp_path} "):
        store = open_store(path)
        assert isinstance(store, LocalStore)
        assert store.url == str(tmp_path)
    assert not open_store(str(tmp_path)).remote


def test_a_path_object_is_a_path(tmp_path: Path) -> None:
    assert open_store(tmp_path).url == str(tmp_path)  # type: ignore[arg-type]


def test_colon_alone_is_not_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("runs:one/a").url == str(tmp_path / "runs:one" / "a")


def test_memory() -> None:
    assert isinstance(open_store("memory://test_store"), MemoryStore)


@pytest.mark.parametrize("url", ["s3://bucket/run", "gs://bucket/run", "S3://bucket/run/"])
def test_object_stores(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = open_store(url)
    assert isinstance(store, ObjectStore)
    assert store.remote
    assert store.parallel > 1
    assert not store.url.endswith("/")


def test_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert isinstance(open_store("az://container/run"), ObjectStore)


@pytest.mark.parametrize("path", ["ftp://host/x", "s4://bucket/x", "hdfs://x"])
def test_unknown_schemes(path: str) -> None:
    with pytest.raises(SMDebugValueError, match=rf"{path.split(':')[0]}.*s3://"):
        open_store(path)


@pytest.mark.parametrize("path", ["", "   ", "\n"])
def test_empty_paths(path: str) -> None:
    with pytest.raises(SMDebugValueError, match="empty"):
        open_store(path)


def test_url_without_bucket_is_rejected() -> None:
    with pytest.raises((SMDebugValueError, SMDebugRuntimeError), match="s3://"):
        open_store("s3://")


_WITHOUT_OBSTORE = """
import sys
sys.modules["obstore"] = None
from smdebug.exceptions import SMDebugRuntimeError
from smdebug.storage.stores.base import open_store
open_store("runs/one")
try:
    open_store("s3://bucket/run")
except SMDebugRuntimeError as error:
    assert "s3://bucket/run" in str(error), error
    assert "pip install 'tornasole[cloud]'" in str(error), error
else:
    raise SystemExit("no error")
"""

_LOADS_NO_CLOUD = """
import sys
from smdebug.storage.stores.base import open_store
open_store("runs/one")
open_store("memory://x")
assert not {"obstore", "boto3", "botocore"} & set(sys.modules)
"""


@pytest.mark.parametrize("script", [_WITHOUT_OBSTORE, _LOADS_NO_CLOUD], ids=["without", "lazy"])
def test_obstore_is_needed_only_for_urls(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("key", ["a", "a/b", "...", "..a", "a..", "a b", "%2e%2e/a", "-", "ü/ß"])
def test_good_keys(key: str) -> None:
    assert check_key(key) == key


@given(st.text("ab./\\\0", max_size=8))
def test_a_key_that_passes_stays_inside(key: str) -> None:
    try:
        check_key(key)
    except SMDebugValueError:
        return
    root = Path("/some/run")
    inside = Path(f"{root}/{key}")
    assert ".." not in inside.parts
    assert inside.relative_to(root).as_posix() == key


@given(st.binary(max_size=20), st.integers(-30, 30), st.none() | st.integers(0, 30))
def test_ranges_are_slices(data: bytes, start: int, length: int | None) -> None:
    first, end = cut_range(len(data), start, length)
    assert 0 <= first <= end <= len(data)
    assert data[first:end] == (data[start:] if length is None else data[start:][:length])


def test_implementations_satisfy_the_protocol(tmp_path: Path) -> None:
    assert isinstance(LocalStore(tmp_path), Store)
    assert isinstance(MemoryStore(), Store)
