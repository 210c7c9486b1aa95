"""What tests of several folders share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.unreliable import Unreliable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.sagemaker_job import Job


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An empty bucket of an S3 server of our own on loopback; gives its name."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
                patch.delenv(name, raising=False)
            patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
            patch.setenv("AWS_ACCESS_KEY_ID", "testing")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
            patch.setenv("AWS_REGION", "us-east-1")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            boto3.client("s3").create_bucket(Bucket="runs")
            yield "runs"
    finally:
        server.stop()


@pytest.fixture
def sagemaker_job(tmp_path: Path) -> Job:
    """A training job of SageMaker, emulated in a directory of its own."""
    from tests.sagemaker_job import Job

    return Job(tmp_path / "ml")


@pytest.fixture
def proxy(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unreliable]:
    """What stands between us and the bucket, and fails when it is told to."""
    between = Unreliable(os.environ["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", between.url)
    # Servers on loopback are asked directly, whatever the machine's settings are.
    monkeypatch.setenv("no_proxy", "*")
    yield between
    between.close()
