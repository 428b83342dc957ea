"""A wrong clock is named by refusals of credentials, and by certificates of another time."""

from __future__ import annotations

import ssl
import time
from email.utils import formatdate
from typing import Any

import pytest
import requests
import urllib3
from botocore.exceptions import ClientError
from botocore.exceptions import SSLError as BotoSslError

from skyplane_gateway.common.errors import CredentialsExpired, SkyplaneError, Unauthenticated
from skyplane_gateway.stores.azure import errors as azure
from skyplane_gateway.stores.gcs import errors as gcs
from skyplane_gateway.stores.s3 import errors as s3

WHAT = "listing x"


def refused(store: str, code: str, status: int, date: str) -> SkyplaneError:
    headers = {"date": date}
    if store == "s3":
        meta = {"HTTPStatusCode": status, "HTTPHeaders": headers}
        answer: Any = {"Error": {"Code": code}, "ResponseMetadata": meta}
        return s3.translate(ClientError(answer, "ListObjectsV2"), WHAT)
    if store == "azure":
        return azure.translate(azure.Refused(status, {**headers, "x-ms-error-code": code}), WHAT)
    return gcs.from_refusal(gcs.refusal_of(status, headers, b""), WHAT, is_renewable=code == "old")


@pytest.mark.parametrize(
    ("store", "code", "status", "kind"),
    [
        ("s3", "RequestTimeTooSkewed", 403, Unauthenticated),
        ("s3", "SignatureDoesNotMatch", 403, Unauthenticated),
        ("s3", "ExpiredToken", 400, CredentialsExpired),
        ("s3", "RequestExpired", 400, CredentialsExpired),
        ("azure", "AuthenticationFailed", 403, Unauthenticated),
        ("azure", "InvalidAuthenticationInfo", 401, Unauthenticated),
        ("gcs", "", 401, Unauthenticated),
        ("gcs", "old", 401, CredentialsExpired),
    ],
)
@pytest.mark.parametrize("ahead_s", [86_400, -1200, 30])
def test_a_refusal_of_credentials_names_the_clock(
    store: str, code: str, status: int, kind: type[SkyplaneError], ahead_s: int
) -> None:
    error = refused(store, code, status, formatdate(time.time() - ahead_s, usegmt=True))
    assert type(error) is kind
    if ahead_s == 30:
        assert " the store's: set it" not in error.message
        return
    side = "ahead of" if ahead_s > 0 else "behind"
    assert f" s {side} the store's: set it" in error.message


def test_a_skewed_time_is_not_a_matter_of_credentials() -> None:
    error = refused("s3", "RequestTimeTooSkewed", 403, "")
    assert "the clock of this machine is wrong" in error.message
    assert "renew" not in error.message


def unverified(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code = code
    return error


@pytest.mark.parametrize("store", ["s3", "gcs", "azure"])
@pytest.mark.parametrize(
    ("code", "said"),
    [(9, "is not valid yet by this machine's clock"), (10, "has expired by"), (20, "CA bundle")],
)
def test_a_certificate_that_is_not_valid_now(store: str, code: int, said: str) -> None:
    cause = urllib3.exceptions.SSLError(unverified(code))
    if store == "s3":
        try:
            raise BotoSslError(endpoint_url="https://x", error=cause) from cause
        except BotoSslError as error:
            found = s3.translate(error, WHAT)
    elif store == "gcs":
        retry = urllib3.exceptions.MaxRetryError(Any, "https://x", cause)  # type: ignore[arg-type]
        found = gcs.translate(requests.exceptions.SSLError(retry), WHAT)
    else:
        found = azure.translate(cause, WHAT)
    assert said in found.message
    assert found.is_permanent
