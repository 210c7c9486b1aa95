"""Buckets as obstore opens them: credentials, endpoint, region and timeouts."""

from __future__ import annotations

import urllib.error
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.addresses import without_secrets
from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Bucket


class Timeouts(NamedTuple):
    """How long a response may take.

    Attributes:
        answer: seconds for one request, including its body.
        retry: seconds in which obstore repeats a request that was refused, cut off, or answered
            with 429 or 5xx. It signs a request only once, so this does not survive an outage.
    """

    answer: float
    retry: float


# The user waits for the first response, and a wrong URL has none.
FIRST = Timeouts(answer=10, retry=5)
# Later requests may carry 60 MiB over a slow network.
LATER = Timeouts(answer=60, retry=3)
_CONNECT_SECONDS = 5
# Keys may change at any time: boto3 is queried again after this long.
_CREDENTIALS_AGE = timedelta(minutes=1)


def open_bucket(url: str, options: dict[str, Any], timeouts: Timeouts) -> Bucket:
    """Open a URL without a request.

    Args:
        url: what to open.
        options: further arguments of `obstore.store.from_url`.
        timeouts: how long a response may take.

    Raises:
        SMDebugValueError: obstore does not understand the URL or the options.
        SMDebugRuntimeError: obstore is not installed.
    """
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise SMDebugRuntimeError(
            f"{url} needs the package obstore: pip install 'tornasole[cloud]'"
        ) from error
    client = {
        # boto3 and the AWS CLI accept endpoints with http://, too.
        "allow_http": True,
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
        "timeout": timedelta(seconds=timeouts.answer),
        **options.get("client_options", {}),
    }
    retry = {
        # Limited by the time only.
        "max_retries": 1000,
        "retry_timeout": timedelta(seconds=timeouts.retry),
        "backoff": {"max_backoff": timedelta(seconds=1)},
    }
    given: Any = {"retry_config": retry, **options, "client_options": client}
    try:
        return from_url(url, **given)
    except Exception as error:
        # obstore raises errors of several unrelated types for a wrong URL.
        raise SMDebugValueError(
            f"expected a URL such as s3://bucket/prefix, got {url!r}: "
            f"{without_secrets(str(error).splitlines()[0])}"
        ) from None


def boto3_options(url: str) -> dict[str, Any]:
    """Return credentials, region and endpoint of S3 as boto3 finds them; {} without boto3.

    boto3 supports profiles, single sign-on and credential programs; obstore only the environment
    and the machine's metadata service.

    Raises:
        SMDebugValueError: the configuration of boto3 is invalid.
    """
    if not url.startswith(("s3://", "s3a://")):
        return {}
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    try:
        session = boto3.session.Session()
        options: dict[str, Any] = {}
        if session.get_credentials() is not None:
            provider = Boto3CredentialProvider(session, ttl=_CREDENTIALS_AGE)
            options["credential_provider"] = provider
        if session.region_name:
            options["region"] = session.region_name
        endpoint = _configured_endpoint(session)
        if endpoint is not None:
            options["endpoint"] = endpoint
        return options
    except (BotoCoreError, ValueError, OSError) as error:
        raise SMDebugValueError(
            f"boto3 cannot open {url}: {_reason(error)}; check the files and variables it is "
            "configured with (AWS_PROFILE, AWS_CONFIG_FILE, AWS_ENDPOINT_URL)"
        ) from None


def _reason(error: Exception) -> str:
    """Return the error of boto3, without output of programs, endpoints and keys."""
    provider = getattr(error, "kwargs", {}).get("provider")
    if provider is not None:
        # The rest is the output of a program, which may be anything.
        return f"{type(error).__name__}: no credentials from {provider}"
    if isinstance(error, ValueError):
        # An endpoint need not look like a URL to have a password in it.
        return str(error).partition(":")[0]
    return without_secrets(str(error).partition("\n")[0])


def _configured_endpoint(session: Any) -> str | None:
    """Return the endpoint of a variable or a profile; None if it is the default."""
    from botocore.config import Config

    # There is no default without a region; any region will do for comparing.
    region = session.region_name or "us-east-1"
    plain = Config(ignore_configured_endpoint_urls=True)
    usual = session.client("s3", region, config=plain).meta.endpoint_url
    found: str = session.client("s3", region).meta.endpoint_url
    return None if found == usual else found


def region_of(bucket_url: str) -> str | None:
    """Ask S3 for the region of a bucket, which needs no credentials; None without a response.

    Args:
        bucket_url: its `http://` or `https://` URL.
    """
    request = urllib.request.Request(bucket_url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=FIRST.answer) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as error:
        # Errors carry the header, too.
        headers = error.headers
        error.close()
    except OSError:
        return None
    found = headers.get("x-amz-bucket-region")
    return None if found is None else str(found)
