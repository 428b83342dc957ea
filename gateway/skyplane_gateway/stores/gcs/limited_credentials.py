"""Tokens of Google that reach the places of a job only, for gateways.

They follow "Restrict a credential's Cloud Storage permissions" (cloud.google.com/iam/docs, as read
on 2026-11-28): a Credential Access Boundary takes from the rights of the token that it is made of.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import google.auth.downscoped
from google.auth.exceptions import OAuthError

from skyplane_gateway.common.errors import CredentialsTooWide, StoreError
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores.gcs.credentials import CLOUD_SCOPE, token_of
from skyplane_gateway.stores.gcs.endpoints import is_google
from skyplane_gateway.stores.key_rules import UPLOADS_FOLDER
from skyplane_gateway.stores.reach import Reach

#: Any: google-auth's functions have no types.
_downscoped: Any = google.auth.downscoped

_READER: Final = "inRole:roles/storage.objectViewer"
_WRITER: Final = "inRole:roles/storage.objectUser"
#: Of a listing: its prefix. Of other requests: empty.
_LISTED: Final = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"


class _Given:
    """A token as google-auth's source of another one; nothing refreshes it."""

    def __init__(self, found: Credentials) -> None:
        self.token = found["access_token"]
        # google-auth takes UTC without a zone.
        known = found.get("expires_at")
        self.expiry = known and datetime.fromtimestamp(int(known), UTC).replace(tzinfo=None)

    def refresh(self, _: object) -> None: ...


def limited_credentials(found: Credentials, reaches: Sequence[Reach]) -> Credentials:
    """A token that reaches these places only. 1 call.

    The same token for an endpoint that is not Google's, such as an emulator.

    Raises:
        CredentialsTooWide: Google makes no such token of this one.
        StoreError: Google does not answer.
    """
    if not is_google(reaches[0].store.endpoint_url):
        return found
    boundary = access_boundary(reaches)
    places = ", ".join(one.urls for one in reaches)
    try:
        return token_of(_downscoped.Credentials(_Given(found), boundary), "the token")
    except StoreError as error:
        if not _is_refusal(error.__cause__):
            raise
        why = "Google makes no such token of the one that was found"
        needed = f"give an identity whose tokens may have the scope {CLOUD_SCOPE}"
        raise CredentialsTooWide.of(places, why, needed) from error


def _is_refusal(error: BaseException | None) -> bool:
    """Whether it is an error of OAuth; one of a server has an object in its place."""
    try:
        return isinstance(error, OAuthError) and isinstance(json.loads(error.args[1])["error"], str)
    except (ValueError, LookupError, TypeError):
        return False


def access_boundary(reaches: Sequence[Reach]) -> Any:
    """google-auth's boundary that allows what a gateway does in these places."""
    return _downscoped.CredentialAccessBoundary([_rule(one) for one in reaches])


def _rule(reach: Reach) -> Any:
    name = f"projects/_/buckets/{reach.store.bucket}"
    given = f"//storage.googleapis.com/{name}", [_WRITER if reach.writes else _READER]
    if "" in reach.folders:
        return _downscoped.AccessBoundaryRule(*given)
    # Parts of uploads are beside the folder.
    folders = (*reach.folders, *((UPLOADS_FOLDER,) if reach.writes else ()))
    terms = [
        f"{what}.startsWith({quoted(before + folder)})"
        for folder in folders
        for what, before in (("resource.name", f"{name}/objects/"), (_LISTED, ""))
    ]
    terms += [
        f"{what} == {quoted(before + key)}"
        for key in reach.keys
        for what, before in (("resource.name", f"{name}/objects/"), (_LISTED, ""))
    ]
    condition = _downscoped.AvailabilityCondition(" || ".join(terms))
    return _downscoped.AccessBoundaryRule(*given, condition)


def quoted(text: str) -> str:
    """A string literal of the Common Expression Language, which has the escapes of JSON."""
    return json.dumps(text, ensure_ascii=False)
