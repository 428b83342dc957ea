"""Maps answers and exceptions of Google Cloud Storage to this project's errors.

The JSON API's reason decides, then the HTTP status; never the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
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
    Unauthenticated,
)
from skyplane_gateway.stores.error_rules import (
    Meaning,
    Refusal,
    clock_hint,
    mapping,
    not_trusted,
    unreachable,
)
from skyplane_gateway.stores.response_validation import NoAnswer, unavailable

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
        PermissionDenied, "an organisation policy forbids this request", "orgPolicyConstraintFailed"
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
    Meaning(PermissionDenied, "grant these credentials the permission for it", statuses=(403,)),
    Meaning(
        PreconditionFailed, "another writer wrote or changed the object meanwhile", statuses=(412,)
    ),
    Meaning(
        PreconditionFailed,
        "another write of the same object was in progress: begin again",
        statuses=(409,),
        is_permanent=False,
    ),
    Meaning(ChecksumMismatch, _SEND_AGAIN, "crcMismatch badDigest"),
    Meaning(StoreUnavailable, "try again", statuses=(408,)),
    Meaning(Unauthenticated, "the store does not accept these credentials", statuses=(401,)),
)

_NO_CREDENTIALS: Final = (
    "there are no usable credentials: run `gcloud auth application-default login`, set "
    "GOOGLE_APPLICATION_CREDENTIALS, or give this location a connection"
)


def refusal_of(status: int, headers: Mapping[str, str], body: bytes) -> tuple[Refusal, str]:
    """Read an answer that is no success; JSON, or XML from the XML API.

    The code is the reason of the JSON API (`retentionPolicyNotMet`) or the code of the XML API
    (`NoSuchKey`). Both spell some the same but for the first letter. Returns also the header or
    parameter that the refusal is about; empty where it names none.
    """
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
    return Refusal(status, headers, reason, message), location


def from_refusal(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    what: str,
    *,
    is_renewable: bool,
    has_checksum: bool = False,
) -> StoreError:
    """The leaf of the error tree for an answer.

    Args:
        headers: names in lower case, or without a case.
        is_renewable: the request was sent with a token of limited life, which can be renewed.
        has_checksum: it had bytes with a checksum that they fit.
    """
    refusal, location = refusal_of(status, headers, body)
    said = f"{what}: {status} {refusal.code}".rstrip()
    if status == 401 and is_renewable:
        why = f"these credentials have expired: renew them{clock_hint(headers)}"
        return CredentialsExpired(f"{said}; {why}")
    reason = refusal.code[:1].lower() + refusal.code[1:]
    if has_checksum and (status, reason, location) == (400, "invalid", ""):
        # The service has no reason of its own for a checksum that does not fit.
        return ChecksumMismatch(
            f"{said}; the bytes, or what describes them, came wrong: send them again "
            f"({refusal.words})"
        )
    is_throttling = refusal.code in _THROTTLED.split() or status in (429, 503)
    return replace(refusal, code=reason).error(_MEANINGS, said, is_throttling=is_throttling)


def translate(error: Exception, what: str) -> SkyplaneError:
    """The leaf of the error tree for an exception without an answer."""
    if isinstance(error, NoAnswer):
        return unavailable(what, error)
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
        return not_trusted(what, error)
    if isinstance(error, requests.exceptions.InvalidJSONError):
        return unavailable(what, "is no JSON")
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return StoreError(f"{what}: the endpoint is not a URL; correct it", is_permanent=True)
    return unreachable(what, error)


mapped: Final = mapping(
    translate, NoAnswer, auth_errors.GoogleAuthError, requests.RequestException, HTTPError
)
