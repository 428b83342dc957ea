"""Maps answers and exceptions of Google Cloud Storage to this project's errors.

The JSON API's reason decides, then the HTTP status; never the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import requests
from google.auth import exceptions as auth_errors
from urllib3.exceptions import HTTPError

from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    CredentialsExpired,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    SkyplaneError,
    StoreError,
    StoreUnavailable,
    Throttled,
    Unauthenticated,
)
from skyplane_gateway.stores.answers import NoAnswer, unavailable
from skyplane_gateway.stores.refusals import (
    Meaning,
    clock_hint,
    meaning_of,
    retry_after_s,
    why_no_tls,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One answer that is no success.

    Attributes:
        reason: of the JSON API (`retentionPolicyNotMet`) or the code of the XML API (`NoSuchKey`).
            Both spell some the same but for the first letter.
        message: Google's own words; they name a missing permission.
        location: the header or parameter that the refusal is about; empty where it names none.
        clock: see `clock_hint`.
    """

    status: int
    reason: str
    message: str
    retry_after_s: float | None
    location: str = ""
    clock: str = ""


_SEND_AGAIN: Final = "the bytes changed on the way: send them again"

_THROTTLED: Final = "rateLimitExceeded userRateLimitExceeded SlowDown"

#: A reason decides before a status does.
_MEANINGS: Final = (
    Meaning(
        PermissionDenied,
        "a retention policy protects the object: choose another key or bucket, or wait until its "
        "retention ends",
        "retentionPolicyNotMet",
    ),
    Meaning(
        PermissionDenied,
        "a hold protects the object: release the hold (gcloud storage objects update), or choose "
        "another key",
        "objectUnderActiveHold",
    ),
    Meaning(
        PermissionDenied,
        "an organisation policy forbids this request",
        "orgPolicyConstraintFailed",
    ),
    Meaning(
        StoreError,
        "the bucket charges its readers: give the option user_project=PROJECT",
        "userProjectMissing",
        is_permanent=True,
    ),
    Meaning(
        StoreError,
        "the option user_project names no project: correct it",
        "userProjectInvalid",
        is_permanent=True,
    ),
    Meaning(
        PermissionDenied,
        "grant serviceusage.services.use on the project that user_project names",
        "userProjectAccessDenied",
    ),
    Meaning(
        PermissionDenied,
        "check the billing of the project",
        "userProjectAccountProblem accountDisabled",
    ),
    Meaning(
        PermissionDenied,
        "the object is encrypted with a key that the customer sends, which is not supported",
        "resourceIsEncryptedWithCustomerEncryptionKey",
    ),
    Meaning(
        NotFound,
        "check the name, or it was deleted meanwhile; restore it if it is soft-deleted",
        statuses=(404, 410),
    ),
    Meaning(
        PermissionDenied,
        "grant these credentials the permission for it",
        statuses=(403,),
    ),
    Meaning(
        PreconditionFailed,
        "another writer wrote or changed the object meanwhile",
        statuses=(412,),
    ),
    Meaning(
        PreconditionFailed,
        "another write of the same object was in progress: begin again",
        statuses=(409,),
        is_permanent=False,
    ),
    Meaning(ChecksumMismatch, _SEND_AGAIN, "crcMismatch badDigest"),
    Meaning(StoreUnavailable, "try again", statuses=(408,)),
)

_NO_CREDENTIALS: Final = (
    "there are no usable credentials: run `gcloud auth application-default login`, set "
    "GOOGLE_APPLICATION_CREDENTIALS, or give this location a connection"
)


def refusal_of(status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
    """Read an answer that is no success; JSON, or XML from the XML API."""
    reason, message, location = "", "", ""
    try:
        error = json.loads(body)["error"]
        message = str(error.get("message", ""))
        first = error["errors"][0]
        reason, location = str(first["reason"]), str(first.get("location", ""))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        if code := re.search(rb"<Code>(\w+)</Code>", body):
            reason = code.group(1).decode()
        if details := re.search(rb"<Details>([^<]*)</Details>", body):
            message = details.group(1).decode(errors="replace")
    named = (message, retry_after_s(headers), location, clock_hint(headers))
    return Refusal(status, reason, *named)


def from_refusal(
    refusal: Refusal, what: str, *, is_renewable: bool, has_checksum: bool = False
) -> StoreError:
    """The leaf of the error tree for an answer.

    Args:
        is_renewable: the request was sent with a token of limited life, which can be renewed.
        has_checksum: it had bytes with a checksum that they fit.
    """
    status = refusal.status
    said = f"{what}: {status} {refusal.reason}".rstrip()
    if refusal.reason in _THROTTLED.split() or status in (429, 503):
        return Throttled(
            f"{said}; the store asks for fewer requests", retry_after_s=refusal.retry_after_s
        )
    if status == 401 and is_renewable:
        why = "these credentials have expired: renew them"
        return CredentialsExpired(f"{said}; {why}{refusal.clock}")
    if status == 401:
        why = "the store does not accept these credentials"
        return Unauthenticated(f"{said}; {why}{refusal.clock}")
    reason = refusal.reason[:1].lower() + refusal.reason[1:]
    words = f" ({refusal.message})" if refusal.message else ""
    if meaning := meaning_of(_MEANINGS, reason, status):
        # Google's words name the permission that a refusal is about.
        return meaning.raised(said, words if meaning.error is PermissionDenied else "")
    if status >= 500:
        return StoreUnavailable(f"{said}; try again")
    if has_checksum and (status, reason, refusal.location) == (400, "invalid", ""):
        # The service has no reason of its own for a checksum that does not fit.
        return ChecksumMismatch(
            f"{said}; the bytes, or what describes them, came wrong: send them again{words}"
        )
    return StoreError(f"{said}{words}", is_permanent=400 <= status < 500)


@contextmanager
def mapped(what: str) -> Iterator[None]:
    """Raise this project's error for exceptions of google-auth, requests and urllib3."""
    try:
        yield
    except NoAnswer as error:
        raise unavailable(what, error) from error
    except (auth_errors.GoogleAuthError, requests.RequestException, HTTPError) as error:
        raise translate(error, what) from error


def translate(error: Exception, what: str) -> SkyplaneError:
    """The leaf of the error tree for an exception without an answer."""
    if isinstance(error, auth_errors.DefaultCredentialsError):
        return Unauthenticated(f"{what}: {_NO_CREDENTIALS}")
    if isinstance(error, auth_errors.TransportError):
        return StoreUnavailable(
            f"{what}: Google's token service does not answer; check the network"
        )
    if isinstance(error, auth_errors.GoogleAuthError):
        if error.retryable:
            return StoreUnavailable(f"{what}: Google's token service failed; try again")
        return Unauthenticated(
            f"{what}: Google gives no token for these credentials ({type(error).__name__}: "
            f"{error}); renew or correct them, and check this machine's clock"
        )
    if isinstance(error, requests.exceptions.SSLError):
        why = why_no_tls(error, "REQUESTS_CA_BUNDLE")
        return StoreUnavailable(f"{what}: {why}", is_permanent=True)
    if isinstance(error, requests.exceptions.InvalidJSONError):
        return unavailable(what, "is no JSON")
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return StoreError(f"{what}: the endpoint is not a URL; correct it", is_permanent=True)
    return StoreUnavailable(
        f"{what}: the endpoint cannot be reached or does not answer ({type(error).__name__}); "
        "check the endpoint and the network"
    )
