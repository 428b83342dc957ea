"""The commands of the tools that mount places, with the secrets in their environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from skyplane_orchestration.storage.access import OWN_TOOL, RCLONE, Access

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
    settings = {
        **given,
        "type": {"s3": "s3", "gcs": "google cloud storage", "azure": "azureblob"}[kind],
        "provider": "Other" if endpoint else "AWS",
        "account": access.account,
        "endpoint": f"{endpoint}/storage/v1/" if kind == "gcs" and endpoint else endpoint,
        "region": access.region,
        "env_auth": str(is_own).lower(),
        "anonymous": str(access.is_anonymous).lower(),
        "requester_pays": access.option("requester-pays") or "false",
        "user_project": access.option("user_project"),
        "force_path_style": str(access.option("addressing") != "virtual").lower(),
        "bucket_policy_only": "true",
        "no_check_bucket": "true",
        "no_check_container": "true",
    }
    options = _words(
        config="/dev/null",
        cache_dir=cache,
        vfs_cache_mode="writes",
        # Without a delay, a failed upload would not be tried again.
        vfs_write_back="100ms",
        dir_cache_time="10s",
        use_server_modtime=True,
        read_only=read_only,
    )
    environment = {f"RCLONE_CONFIG_SKYPLANE_{name.upper()}": settings[name] for name in settings}
    return ["rclone", "mount", f"skyplane:{access.path}", folder, *options], environment


def _mountpoint(access: Access, folder: str, cache: str, read_only: bool) -> Command:
    key, given = access.place.key.rstrip("/"), access.given_to(OWN_TOOL)
    options = _words(
        foreground=True,
        read_only=read_only,
        allow_delete=not read_only,
        allow_overwrite=not read_only,
        prefix=key and f"{key}/",
        endpoint_url=access.endpoint,
        region=access.region,
        no_sign_request=access.is_anonymous,
        requester_pays=access.option("requester-pays") == "true",
        force_path_style=bool(access.endpoint) and access.option("addressing") != "virtual",
    )
    # The user's own would be mixed with the given ones.
    own = {"AWS_PROFILE": "", "AWS_SESSION_TOKEN": ""} if given else {}
    return ["mount-s3", access.bucket, folder, *options], own | given


def _gcsfuse(access: Access, folder: str, cache: str, read_only: bool) -> Command:
    options = _words(
        foreground=True,
        implicit_dirs=True,
        only_dir=access.place.key.rstrip("/"),
        custom_endpoint=access.endpoint,
        billing_project=access.option("user_project"),
        anonymous_access=access.is_anonymous,
    )
    options += ["-o", "ro"] if read_only else []
    return ["gcsfuse", *options, access.bucket, folder], access.given_to(OWN_TOOL)


def _blobfuse(access: Access, folder: str, cache: str, read_only: bool) -> Command:
    kinds = {"account_key": "key", "sas_token": "sas", "client_id": "spn"}
    environment = {
        "AZURE_STORAGE_ACCOUNT": access.account,
        "AZURE_STORAGE_BLOB_ENDPOINT": access.endpoint,
        "AZURE_STORAGE_AUTH_TYPE": next(
            (kinds[one] for one in kinds if one in access.given), "msi"
        ),
    }
    options = _words(
        foreground=True,
        container_name=access.bucket,
        tmp_path=cache,
        subdirectory=access.place.key.rstrip("/"),
        read_only=read_only,
    )
    return ["blobfuse2", "mount", folder, *options], environment | access.given_to(OWN_TOOL)


#: Kind of store -> its tools, the best first, and how each is started.
TOOLS: Final[Mapping[str, Mapping[str, Callable[[Access, str, str, bool], Command]]]] = {
    "s3": {"rclone": _rclone, "mount-s3": _mountpoint},
    "gcs": {"rclone": _rclone, "gcsfuse": _gcsfuse},
    "azure": {"rclone": _rclone, "blobfuse2": _blobfuse},
}
