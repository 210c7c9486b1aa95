"""The store over obstore, against an S3 server."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest

from smdebug.storage.stores.base import Store, open_store
from smdebug.storage.stores.object_store import ObjectStore
from smdebug.testing import StoreContract

_NUMBERS = itertools.count()

pytestmark = pytest.mark.filterwarnings(
    # botocore, not us.
    "ignore:.*utcnow.*:DeprecationWarning"
)


@pytest.fixture
def url(bucket: str) -> str:
    return f"s3://{bucket}/folder/run-{next(_NUMBERS)}"


class TestObjectStore(StoreContract):
    @pytest.fixture
    def store(self, url: str) -> Store:
        return open_store(url)


def test_a_whole_bucket_may_be_a_run(bucket: str) -> None:
    boto3.client("s3").create_bucket(Bucket="whole")
    store = open_store("s3://whole")
    store.write("index/x", [b"1"])
    store.write("y", [b"2"])
    assert list(store.list()) == ["index/x", "y"]
    assert list(store.list("index/")) == ["index/x"]
    assert bytes(store.read("index/x")) == b"1"


def test_keys_are_below_the_url(url: str, bucket: str) -> None:
    store = open_store(url + "/")
    store.write("events/a b%", [b"x"])
    key = url.removeprefix(f"s3://{bucket}/") + "/events/a b%"
    response = boto3.client("s3").get_object(Bucket=bucket, Key=key)
    assert response["Body"].read() == b"x"


def test_sibling_with_the_same_prefix_is_not_listed(url: str) -> None:
    open_store(url + "0").write("x", [b"1"])
    assert list(open_store(url).list()) == []


def test_options_reach_obstore(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = boto3.client("s3").meta.endpoint_url
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    store = ObjectStore(
        f"s3://{bucket}/options", endpoint=endpoint, client_options={"allow_http": True}
    )
    store.write("x", [b"1"])
    assert bytes(store.read("x")) == b"1"


def test_more_objects_than_one_page_of_a_listing(url: str) -> None:
    store = open_store(url)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: store.write(f"index/{number:05d}", []), range(1010)))
    assert list(store.list("index/")) == [f"index/{number:05d}" for number in range(1010)]
    assert list(store.list("index/", "index/01007")) == ["index/01008", "index/01009"]


def test_missing_bucket_is_an_error_with_its_name(bucket: str) -> None:
    store = open_store("s3://no-such-bucket-here/run")
    with pytest.raises(Exception, match="no-such-bucket-here"):
        list(store.list())
