"""The store in memory."""

from __future__ import annotations

import threading

import pytest

from smdebug.storage.stores.base import Store, open_store
from smdebug.storage.stores.memory import MemoryStore
from smdebug.testing import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


def test_a_url_names_one_store() -> None:
    first = open_store("memory://test_memory/one")
    first.write("x", [b"1"])
    assert bytes(open_store("memory://test_memory/one").read("x")) == b"1"
    assert list(open_store("memory://test_memory/two").list()) == []


def test_unnamed_stores_are_separate() -> None:
    MemoryStore().write("x", [b"1"])
    assert list(MemoryStore().list()) == []


def test_listing_while_others_write() -> None:
    store = MemoryStore()
    failures: list[BaseException] = []

    def write() -> None:
        for number in range(2000):
            store.write(f"k/{number}", [b"x"])

    def read() -> None:
        try:
            while len(list(store.list("k/"))) < 2000:
                pass
        except RuntimeError as error:
            failures.append(error)

    threads = [threading.Thread(target=write), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
