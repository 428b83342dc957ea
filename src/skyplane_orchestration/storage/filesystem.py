"""Places as file systems of fsspec, by s3fs, gcsfs and adlfs."""

from __future__ import annotations

import json
import os
from importlib import import_module
from typing import Any, Final

from skyplane_gateway.stores import is_google
from skyplane_orchestration.errors import ConfigurationInvalid, MissingExtra
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.access import FSSPEC, Access, access_to

#: Kind of store -> module and class.
_CLASSES: Final = {
    "s3": ("s3fs", "S3FileSystem"),
    "gcs": ("gcsfs", "GCSFileSystem"),
    "azure": ("adlfs", "AzureBlobFileSystem"),
    "file": ("fsspec.implementations.local", "LocalFileSystem"),
}


# Any: fsspec has no types.
def filesystem_of(place: Location) -> tuple[Any, str]:
    """A file system, and the path of the place in it. Makes no request to the store.

    Raises:
        MissingExtra: a package is not installed.
        ConfigurationInvalid, StoreError: the credentials cannot be used.
    """
    module, name = _CLASSES[place.kind]
    try:
        kind = getattr(import_module(module), name)
        if place.kind == "file":
            return kind(), f"/{place.key}"
        access = access_to(place, CredentialSources())
        if place.kind == "gcs" and not is_google(access.endpoint):
            # The other class asks by gRPC what the bucket is.
            kind = import_module("gcsfs.core").GCSFileSystem
    except ImportError as error:
        raise MissingExtra.of(f"fsspec for {place.url!r}", "fsspec") from error
    return kind(**{"s3": _s3, "gcs": _gcs, "azure": _azure}[place.kind](access)), access.path


def _s3(access: Access) -> dict[str, Any]:
    style = access.option("addressing") or ("path" if access.endpoint else "auto")
    return {
        **access.given_to(FSSPEC),
        "anon": access.is_anonymous,
        "endpoint_url": access.endpoint or None,
        "client_kwargs": {"region_name": access.region} if access.region else {},
        "config_kwargs": {"s3": {"addressing_style": style}},
        "requester_pays": access.option("requester-pays") == "true",
    }


def _gcs(access: Access) -> dict[str, Any]:
    own = "anon" if access.is_anonymous else "google_default"
    token = access.given_to(FSSPEC).get("token", own)
    return {
        "token": json.loads(token) if token.startswith("{") else token,
        "endpoint_url": access.endpoint or None,
        "requester_pays": access.option("user_project") or False,
    }


def _azure(access: Access) -> dict[str, Any]:
    given = access.given_to(FSSPEC)
    for name, field in (("account_key", "AccountKey"), ("sas_token", "SharedAccessSignature")):
        if name in given:
            place = f"AccountName={access.account};BlobEndpoint={access.endpoint}"
            return {"connection_string": f"{place};{field}={given[name]}"}
    if "AZURE_STORAGE_CONNECTION_STRING" in os.environ:
        # It is one of another account, and adlfs would take it.
        raise ConfigurationInvalid(f"unset AZURE_STORAGE_CONNECTION_STRING for {access.place.url}")
    host = access.endpoint.partition("://")[2]
    own = {"account_name": access.account, "account_host": host, "anon": access.is_anonymous}
    return own | given
