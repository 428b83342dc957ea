"""Credentials of AWS for gateways: of this process, of a role, of another library's session."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ParamValidationError

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores.s3.client import answered_credentials, frozen, refresh_before_calls
from skyplane_gateway.stores.s3.error_mapping import mapped
from skyplane_gateway.stores.s3.sdk import BadAnswer, new_session

if TYPE_CHECKING:
    from mypy_boto3_sts import STSClient
    from mypy_boto3_sts.type_defs import CredentialsTypeDef

_DEFAULT_REGION: Final = "us-east-1"
#: botocore's name for such credentials, and the variables that name their role.
_WEB_IDENTITY: Final = "assume-role-with-web-identity"
_NAMED_ROLE: Final = {
    "AWS_ROLE_ARN": "role_arn",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "web_identity_token_file",
}


class _Session(Protocol):
    """The part of a session of botocore or boto3 that is used."""

    def get_credentials(self) -> Any: ...


def ambient_credentials(
    profile: str | None = None, *, is_unassumed: bool = False
) -> Credentials | None:
    """The credentials of botocore's default chain, or of one profile, frozen; None for none.

    Temporary credentials carry `expires_at`.

    Args:
        is_unassumed: the role of a web identity that the environment names, as EKS does for Pods,
            is not assumed; the result is then one of `sendable_credentials`.

    Raises:
        ConfigurationInvalid: no such profile.
        Unauthenticated: a source of the chain fails.
    """
    what = f"reading the credentials of {profile or 'this process'}"
    with mapped(what), answered_credentials():
        found = new_session(profile).get_credentials()
        if is_unassumed and not profile and (role := _named_role(found)):
            return role
        return frozen_credentials(found)


def _named_role(found: Any) -> Credentials | None:
    """The role of the environment, if botocore's chain has ended there."""
    if getattr(found, "method", "") != _WEB_IDENTITY or not all(map(os.environ.get, _NAMED_ROLE)):
        return None
    name = os.environ.get("AWS_ROLE_SESSION_NAME") or "skyplane"
    values = {field: os.environ[one] for one, field in _NAMED_ROLE.items()}
    return Credentials({**values, "role_arguments": json.dumps({"RoleSessionName": name})})


def frozen_credentials(found: Any) -> Credentials | None:
    """Those of botocore's `Credentials` at this moment, to be sent to gateways; None for none."""
    if found is None:
        return None
    now = frozen(found)
    values = {"access_key_id": now.access_key, "secret_access_key": now.secret_key}
    if not all(isinstance(value, str) and value for value in values.values()):
        raise BadAnswer(why="has no credentials")
    if now.token:
        values["session_token"] = now.token
    # botocore has no public name for the expiry; static credentials have none.
    expiry = getattr(found, "_expiry_time", None)
    if expiry is not None:
        values["expires_at"] = str(int(expiry.timestamp()))
    return Credentials(values)


def sendable_credentials(values: Mapping[str, str]) -> Credentials:
    """The credentials that gateways get for those that a user named. At most 1 call, to STS.

    Args:
        values: `access_key_id`, `secret_access_key` and perhaps `session_token`. With `role_arn`
            those of the role, which expire: the keys, `profile` or the process's own credentials
            may assume it, or the token in `web_identity_token_file`. `role_arguments` is JSON with
            further arguments of the call to STS, such as `ExternalId`; `region` and
            `sts_endpoint_url` are those of STS.

    Raises:
        ConfigurationInvalid: an argument is not one of STS, or the token file cannot be read.
        StoreError: STS refuses, or does not answer.
    """
    if not values.get("role_arn"):
        return Credentials(values)
    with assuming(values["role_arn"]):
        return credentials_of(assumed(values))


@contextmanager
def assuming(role: str) -> Iterator[None]:
    """Errors of `assumed` in the block become ours."""
    with mapped(f"assuming the role {role}"):
        try:
            yield
        except (ParamValidationError, TypeError) as error:
            raise ConfigurationInvalid(
                f"the arguments for assuming the role {role} are not those of AWS STS: {error}"
            ) from error


def credentials_of(found: CredentialsTypeDef) -> Credentials:
    """Those of an answer of STS. Raises BadAnswer."""
    with answered_credentials():
        values = {
            "access_key_id": found["AccessKeyId"],
            "secret_access_key": found["SecretAccessKey"],
            "session_token": found["SessionToken"],
            "expires_at": str(int(found["Expiration"].timestamp())),
        }
    if not all(values.values()):
        raise BadAnswer(why="has no credentials")
    return Credentials(values)


def session_credentials(open_session: Callable[[], _Session]) -> Credentials | None:
    """The frozen credentials of a session that another library has made; None for none.

    Raises:
        StoreError: a source of the session fails.
    """
    with mapped("reading the credentials of the session"), answered_credentials():
        return frozen_credentials(open_session().get_credentials())


def assumed(values: Mapping[str, str], policy: str = "") -> CredentialsTypeDef:
    """The role that `sendable_credentials` takes. 1 call to STS.

    Args:
        policy: of the session, in JSON; empty for none.
    """
    arguments = {"RoleArn": values["role_arn"], **json.loads(values.get("role_arguments", "{}"))}
    if policy:
        arguments["Policy"] = policy
    token_file = values.get("web_identity_token_file")
    sts: STSClient = open_service("sts", values, is_signed=not token_file)
    try:
        if token_file:
            arguments["WebIdentityToken"] = _token(token_file)
        with answered_credentials():
            call = sts.assume_role_with_web_identity if token_file else sts.assume_role
            return call(**arguments)["Credentials"]
    finally:
        sts.close()


def open_service(service: str, values: Mapping[str, str], *, is_signed: bool) -> Any:
    """A client of STS or IAM for keys, a `profile` or the process's own credentials."""
    session = new_session(values.get("profile") or None)
    if values.get("access_key_id"):
        session.set_credentials(
            values["access_key_id"], values["secret_access_key"], values.get("session_token")
        )
    # Sessions of the global endpoint are not valid in all regions.
    session.set_config_variable("sts_regional_endpoints", "regional")
    region = values.get("region") or session.get_config_variable("region") or _DEFAULT_REGION
    made = session.create_client(
        service,
        region_name=region,
        endpoint_url=values.get("sts_endpoint_url") or None,
        config=None if is_signed else Config(signature_version=UNSIGNED),
    )
    if is_signed:
        refresh_before_calls(made, session)
    return made


def _token(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationInvalid(
            f"the web identity token {path!r} cannot be read: {error.strerror}"
        ) from error
