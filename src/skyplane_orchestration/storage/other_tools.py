"""How tools of others get to a place: those that mount it, and file systems of fsspec."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from skyplane_gateway.stores import is_google, url_of_account
from skyplane_orchestration.errors import ConfigurationInvalid, MissingExtra
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security import store_credentials as known
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.open import spec_of

#: Columns of `_NAMES`.
RCLONE, OWN_TOOL, FSSPEC = range(3)
#: Our name of a credential -> that of rclone, of the cloud's own tool, of fsspec; empty for none.
_NAMES: Final[Mapping[str, tuple[str, str, str]]] = {
    "profile": ("profile", "AWS_PROFILE", "profile"),
    "access_key_id": ("access_key_id", "AWS_ACCESS_KEY_ID", "key"),
    "secret_access_key": ("secret_access_key", "AWS_SECRET_ACCESS_KEY", "secret"),
    "session_token": ("session_token", "AWS_SESSION_TOKEN", "token"),
    "service_account_file": ("service_account_file", "GOOGLE_APPLICATION_CREDENTIALS", "token"),
    "service_account_json": ("service_account_credentials", "", "token"),
    "access_token": ("access_token", "", "token"),
    "account_key": ("key", "AZURE_STORAGE_ACCESS_KEY", "account_key"),
    "sas_token": ("sas_url", "AZURE_STORAGE_SAS_TOKEN", "sas_token"),
    "tenant_id": ("tenant", "AZURE_STORAGE_SPN_TENANT_ID", "tenant_id"),
    "client_id": ("client_id", "AZURE_STORAGE_SPN_CLIENT_ID", "client_id"),
    "client_secret": ("client_secret", "AZURE_STORAGE_SPN_CLIENT_SECRET", "client_secret"),
}


@dataclass(frozen=True, slots=True)
class Access:
    """What a tool of others needs for a place; `given` is empty for what the tool finds itself."""

    place: Location
    account: str
    bucket: str
    folder: str
    endpoint: str
    region: str
    given: Mapping[str, str] = field(repr=False)
    is_anonymous: bool

    @property
    def path(self) -> str:
        return f"{self.bucket}/{self.folder}".rstrip("/") or "/"

    def option(self, name: str) -> str:
        return self.place.options.get(name, "")

    def given_to(self, column: int) -> dict[str, str]:
        """The credentials by names of a tool. Raises ConfigurationInvalid if it takes others."""
        for name in self.given:
            if not _NAMES.get(name, ("", "", ""))[column]:
                raise ConfigurationInvalid(f"{name} cannot be used for {self.place.url!r} here")
        return {_NAMES[name][column]: value for name, value in self.given.items()}


def access_to(place: Location, credentials: CredentialSources) -> Access:
    """Raises ConfigurationInvalid or StoreError for credentials that cannot be used.

    Keys and profiles are not exchanged for tokens: a tool that runs for days renews its own.
    """
    spec, folder = spec_of(place), place.key.rstrip("/")
    account, bucket, url = "", place.bucket.rstrip("/"), spec.endpoint_url or ""
    if place.kind == "azure":
        account, _, bucket = place.bucket.partition("/")
        url = url_of_account(account, spec.endpoint_url)
    is_emulator = place.kind == "gcs" and not place.credential_ref and not is_google(url)
    is_anonymous = is_emulator or spec.option("anonymous") == "true"
    given = {} if is_anonymous else _given(place, credentials)
    return Access(place, account, bucket, folder, url, spec.region or "", given, is_anonymous)


def _given(place: Location, credentials: CredentialSources) -> Mapping[str, str]:
    scheme, _, name = place.credential_ref.partition(":")
    if scheme == "profile" and place.kind == "s3":
        return {"profile": name}
    if not scheme and place.kind != "azure":
        return {}
    given = known.variables(name, known.GCS_NAMES) if scheme == "env" else {}
    if given and place.kind == "gcs":
        return given
    found: Mapping[str, str] = credentials.resolve(place) or {}
    if scheme in ("", "env") and "bearer_token" in found:
        return known.variables(name, known.AZURE_PRINCIPAL) if scheme else {}
    return {one: found[one].strip().lstrip("?") for one in found if one != "expires_at"}


#: Words and variables of a command; an empty variable is unset.
Command = tuple[list[str], dict[str, str]]


def _words(**options: str | bool) -> list[str]:
    """Those that are set, by their names; a text follows its option."""
    given = {f"--{name.replace('_', '-')}": value for name, value in options.items() if value}
    return [word for pair in given.items() for word in pair if isinstance(word, str)]


def _rclone(access: Access, folder: str, cache: str, read_only: bool) -> Command:
    kind, endpoint, given = access.place.kind, access.endpoint, access.given_to(RCLONE)
    if "sas_url" in given:
        given["sas_url"] = f"{endpoint}/{access.bucket}?{given['sas_url']}"
    is_own = not access.is_anonymous and given.keys() <= {"profile"}
    # Each store takes those that it has.
    settings = given | {
        "type": {"s3": "s3", "gcs": "google cloud storage", "azure": "azureblob"}[kind],
        "endpoint": f"{endpoint}/storage/v1/" if kind == "gcs" and endpoint else endpoint,
    }
    settings |= {"env_auth": str(is_own), "anonymous": str(access.is_anonymous)}
    settings |= {"provider": "Other" if endpoint else "AWS", "region": access.region}
    settings |= {"account": access.account, "user_project": access.option("user_project")}
    settings |= {"requester_pays": access.option("requester-pays"), "bucket_policy_only": "true"}
    settings |= {"no_check_bucket": "true", "no_check_container": "true"}
    settings |= {"force_path_style": "false"} if access.option("addressing") == "virtual" else {}
    # Without a delay before uploads, a failed one would not be tried again.
    options = _words(vfs_cache_mode="writes", vfs_write_back="100ms", dir_cache_time="10s")
    options += _words(config="/dev/null", cache_dir=cache, use_server_modtime=True)
    options += _words(read_only=read_only)
    environment = {f"RCLONE_CONFIG_SKYPLANE_{name.upper()}": settings[name] for name in settings}
    return ["rclone", "mount", f"skyplane:{access.path}", folder, *options], environment


def _mountpoint(access: Access, folder: str, cache: str, read_only: bool) -> Command:
    may_write, is_virtual = not read_only, access.option("addressing") == "virtual"
    options = _words(allow_delete=may_write, allow_overwrite=may_write, read_only=read_only)
    options += _words(prefix=access.folder and f"{access.folder}/", region=access.region)
    options += _words(endpoint_url=access.endpoint, no_sign_request=access.is_anonymous)
    options += _words(requester_pays=access.option("requester-pays") == "true")
    options += _words(force_path_style=bool(access.endpoint) and not is_virtual)
    given = access.given_to(OWN_TOOL)
    # The user's own would be mixed with the given ones.
    names = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE")
    own = {f"AWS_{name}": "" for name in names if given}
    return ["mount-s3", access.bucket, folder, "--foreground", *options], own | given


def _gcsfuse(access: Access, folder: str, cache: str, read_only: bool) -> Command:
    options = _words(foreground=True, implicit_dirs=True, only_dir=access.folder)
    options += _words(custom_endpoint=access.endpoint, anonymous_access=access.is_anonymous)
    options += _words(billing_project=access.option("user_project"))
    options += ["-o", "ro"] if read_only else []
    return ["gcsfuse", *options, access.bucket, folder], access.given_to(OWN_TOOL)


def _blobfuse(access: Access, folder: str, cache: str, read_only: bool) -> Command:
    kinds = {"account_key": "key", "sas_token": "sas", "client_id": "spn"}
    kind = next((kinds[name] for name in access.given if name in kinds), "msi")
    place = {"ACCOUNT": access.account, "BLOB_ENDPOINT": access.endpoint, "AUTH_TYPE": kind}
    environment = {f"AZURE_STORAGE_{name}": value for name, value in place.items()}
    options = _words(foreground=True, container_name=access.bucket, tmp_path=cache)
    options += _words(subdirectory=access.folder, read_only=read_only)
    return ["blobfuse2", "mount", folder, *options], environment | access.given_to(OWN_TOOL)


#: Kind of store -> its tools, the best first, and how each is started.
TOOLS: Final[Mapping[str, Mapping[str, Callable[[Access, str, str, bool], Command]]]] = {
    "s3": {"rclone": _rclone, "mount-s3": _mountpoint},
    "gcs": {"rclone": _rclone, "gcsfuse": _gcsfuse},
    "azure": {"rclone": _rclone, "blobfuse2": _blobfuse},
}


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
    place = f"AccountName={access.account};BlobEndpoint={access.endpoint}"
    if key := given.get("account_key"):
        return {"connection_string": f"{place};AccountKey={key}"}
    if signature := given.get("sas_token"):
        return {"connection_string": f"{place};SharedAccessSignature={signature}"}
    if "AZURE_STORAGE_CONNECTION_STRING" in os.environ:
        # It is one of another account, and adlfs would take it.
        raise ConfigurationInvalid(f"unset AZURE_STORAGE_CONNECTION_STRING for {access.place.url}")
    given["account_host"] = access.endpoint.partition("://")[2]
    return {"account_name": access.account, "anon": access.is_anonymous, **given}


#: Kind of store -> module, class, and arguments.
_FSSPEC: Final[Mapping[str, tuple[str, str, Callable[[Access], dict[str, Any]]]]] = {
    "s3": ("s3fs", "S3FileSystem", _s3),
    "gcs": ("gcsfs", "GCSFileSystem", _gcs),
    "azure": ("adlfs", "AzureBlobFileSystem", _azure),
    "file": ("fsspec.implementations.local", "LocalFileSystem", lambda _: {}),
}


# Any: fsspec has no types.
def filesystem_of(place: Location) -> tuple[Any, str]:
    """A file system, and the path in it. Raises MissingExtra, and the errors of `access_to`."""
    module, name, arguments = _FSSPEC[place.kind]
    access = access_to(place, CredentialSources())
    if place.kind == "gcs" and not is_google(access.endpoint):
        # The other class asks by gRPC what a bucket is.
        module = "gcsfs.core"
    try:
        kind = getattr(import_module(module), name)
    except ImportError as error:
        raise MissingExtra.of(f"fsspec for {place.url!r}", "fsspec") from error
    return kind(**arguments(access)), access.path
