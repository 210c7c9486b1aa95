"""Opening a bucket with obstore: credentials, endpoint, region, and how long an answer may take."""

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
    """How long an answer may take.

    Attributes:
        answer: seconds for one request, everything it carries included.
        retry: seconds in which obstore sends a request again that was refused, cut off, or
            answered with 429 or 5xx. It signs a request once, so this is no way through an outage.
    """

    answer: float
    retry: float


# Somebody waits for the first answer, and a wrong URL gives none.
FIRST = Timeouts(answer=10, retry=5)
# Later ones may carry 60 MiB over a slow line.
LATER = Timeouts(answer=60, retry=3)
_CONNECT_SECONDS = 5
# Keys may change at any time: boto3 is asked again when the ones it gave are this old.
_CREDENTIALS_AGE = timedelta(minutes=1)


def open_bucket(url: str, options: dict[str, Any], haste: Timeouts) -> Bucket:
    """Opens a URL without asking anything of it.

    Args:
        url: what to open.
        options: what `obstore.store.from_url` takes beside it.
        haste: how long an answer may take.

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
        # boto3 and the command line of AWS take an endpoint of http:// as it is given.
        "allow_http": True,
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
        "timeout": timedelta(seconds=haste.answer),
        **options.get("client_options", {}),
    }
    retry = {
        # The time is the bound.
        "max_retries": 1000,
        "retry_timeout": timedelta(seconds=haste.retry),
        "backoff": {"max_backoff": timedelta(seconds=1)},
    }
    given: Any = {"retry_config": retry, **options, "client_options": client}
    try:
        return from_url(url, **given)
    except Exception as error:
        # obstore says what is wrong with a URL through errors of several unrelated kinds.
        raise SMDebugValueError(
            f"expected a URL such as s3://bucket/prefix, got {url!r}: "
            f"{without_secrets(str(error).splitlines()[0])}"
        ) from None


def boto3_options(url: str) -> dict[str, Any]:
    """What boto3 says of credentials, region and endpoint of S3; {} when it is not there.

    It knows profiles, single sign-on and programs that print credentials; obstore knows the
    environment and the machine it runs on.

    Raises:
        SMDebugValueError: boto3 cannot make sense of its configuration.
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
            f"boto3 finds no way to {url}: {_said(error)}; check the files and variables it is "
            "configured with (AWS_PROFILE, AWS_CONFIG_FILE, AWS_ENDPOINT_URL)"
        ) from None


def _said(error: Exception) -> str:
    """What boto3 complains of, without what it repeats of programs, endpoints and keys."""
    provider = getattr(error, "kwargs", {}).get("provider")
    if provider is not None:
        # What follows is what a program has printed, which may be anything.
        return f"{type(error).__name__}: no credentials from {provider}"
    if isinstance(error, ValueError):
        # An endpoint need not look like a URL to have a password in it.
        return str(error).partition(":")[0]
    return without_secrets(str(error).partition("\n")[0])


def _configured_endpoint(session: Any) -> str | None:
    """The endpoint that a variable or a profile names; None when it is the usual one."""
    from botocore.config import Config

    # Without a region there is no usual one to compare with; which region is no matter here.
    region = session.region_name or "us-east-1"
    plain = Config(ignore_configured_endpoint_urls=True)
    usual = session.client("s3", region, config=plain).meta.endpoint_url
    found: str = session.client("s3", region).meta.endpoint_url
    return None if found == usual else found


def region_of(bucket_url: str) -> str | None:
    """Asks a bucket which region it is in, as S3 tells everybody; None when there is no answer.

    Args:
        bucket_url: its `http://` or `https://` URL.
    """
    request = urllib.request.Request(bucket_url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=FIRST.answer) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as error:
        # "Elsewhere" and "not you" are answers too.
        headers = error.headers
        error.close()
    except OSError:
        return None
    found = headers.get("x-amz-bucket-region")
    return None if found is None else str(found)
