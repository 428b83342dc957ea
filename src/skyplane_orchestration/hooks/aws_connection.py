"""Connections of type `aws`, with the fields of the amazon provider (9.39.0).

A role is assumed by the provider's hook where it is installed, so all its methods work; else by
the same fields.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from airflow.configuration import conf

from skyplane_gateway.stores import (
    Credentials,
    ambient_credentials,
    sendable_credentials,
    session_credentials,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.connection_fields import (
    ConnectionLike,
    extra_fields,
    refuse_fields,
    typed_field,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import UNASSUMED_OPTION

log = logging.getLogger(__name__)

_WEB_IDENTITY: Final = "assume_role_with_web_identity"
_OBJECT: Final = Mapping[str, Any]
_TYPES: Final = {
    **dict.fromkeys(("role_arn", "region_name", "endpoint_url", "profile_name"), str),
    **dict.fromkeys(("aws_access_key_id", "aws_secret_access_key", "aws_session_token"), str),
    **dict.fromkeys(
        ("assume_role_kwargs", "config_kwargs", "service_config", "session_kwargs"), _OBJECT
    ),
    "assume_role_with_web_identity_token_file": str,
}
_METHODS: Final = ("assume_role", "assume_role_with_saml", _WEB_IDENTITY)

#: Fields of `extra` that the provider knew once and now ignores -> what to do instead.
_FORMER: Final = {
    "aws_account_id": "give role_arn",
    "aws_iam_role": "give role_arn",
    "host": "give endpoint_url",
    "profile": "give profile_name",
    "s3_config_file": "give login and password, or profile_name",
}
#: Fields of `config_kwargs` that change who asks or which server answers -> what to do instead.
_CONFIG_UNREAD: Final = {
    "client_cert": "give the location keys or a role",
    "proxies": "set HTTPS_PROXY where gateways run",
    "proxies_config": "set HTTPS_PROXY where gateways run",
    "use_dualstack_endpoint": "give the endpoint_url of the dual-stack endpoint",
    "use_fips_endpoint": "give the endpoint_url of the FIPS endpoint",
}
#: Of `config_kwargs` these are used, or change nothing here.
_CONFIG_READ: Final = frozenset({"region_name", "s3", "signature_version"})
_SIGNATURES: Final = ("s3v4", "v4", "unsigned")


def aws_credentials(
    connection: ConnectionLike, connection_id: str, location: Location
) -> Credentials | None:
    """Keys, those of a role, of `profile_name`, or the worker's own, in the provider's order.

    Credentials of a role expire; each call gets new ones, so a transfer can renew them. With
    `UNASSUMED_OPTION` a role whose fields suffice is left to the caller.
    """
    extra = _checked_extra(connection, connection_id)
    if _is_unsigned(extra):
        return None
    is_own_session = bool(conf.get("aws", "session_factory", fallback=""))
    is_unassumed = (
        UNASSUMED_OPTION in location.options and not is_own_session and _has_plain_role(extra)
    )
    # More than the fields with keys says then what the credentials are.
    if is_own_session or (extra.get("role_arn") and not is_unassumed):
        try:
            from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
        except ModuleNotFoundError:
            pass
        else:
            hook = AwsBaseHook(aws_conn_id=connection_id, client_type="s3")
            return session_credentials("s3", hook.get_session)
    values = _keys(connection, connection_id, extra)
    if extra.get("role_arn"):
        values |= _role(connection_id, extra)
        return Credentials(values) if is_unassumed else sendable_credentials("s3", values)
    if values:
        return Credentials(values)
    return ambient_credentials(
        "s3",
        extra.get("profile_name") or None,
        is_unassumed=UNASSUMED_OPTION in location.options and not is_own_session,
    )


def aws_place(connection: ConnectionLike, connection_id: str, location: Location) -> Location:
    """The location with the connection's endpoint, the endpoint's region, and S3 options.

    `region_name` is the region of a client, not of a bucket: AWS itself names the bucket's.
    """
    extra = _checked_extra(connection, connection_id)
    services = extra.get("service_config", {})
    s3 = services.get("s3", {})
    endpoint = location.endpoint_url or s3.get("endpoint_url") or extra.get("endpoint_url") or ""
    region = location.region
    if endpoint and not region and (name := extra.get("region_name")):
        region = f"aws:{name}"
    options = dict(location.options)
    if _is_unsigned(extra):
        options.setdefault("anonymous", "true")
    addressing = extra.get("config_kwargs", {}).get("s3", {}).get("addressing_style")
    if addressing in ("path", "virtual"):
        options.setdefault("addressing", addressing)
    return replace(location, endpoint_url=endpoint, region=region, options=options)


def _checked_extra(connection: ConnectionLike, connection_id: str) -> dict[str, Any]:
    extra = extra_fields(connection, connection_id, _TYPES)
    refuse_fields(connection_id, extra, _FORMER)
    for name in ("assume_role_kwargs", "config_kwargs", "service_config", "session_kwargs"):
        extra.setdefault(name, {})
    what = f"connection {connection_id!r}"
    services = {
        name: typed_field(_OBJECT, service, f"service_config.{name}", what)
        for name, service in extra["service_config"].items()
    }
    for name in services:
        typed_field(str, services[name].get("endpoint_url", ""), f"{name}.endpoint_url", what)
    s3 = services.get("s3", {})
    verify = s3.get("verify", extra.get("verify", True))
    if verify not in (True, "true", "True"):
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has verify={verify!r}, which is not supported: gateways "
            "check every certificate; add a private authority with AWS_CA_BUNDLE where they run"
        )
    of_s3 = typed_field(_OBJECT, s3.get("config_kwargs", {}), "s3.config_kwargs", what)
    config = {**extra["config_kwargs"], **of_s3}
    typed_field(_OBJECT, config.get("s3", {}), "config_kwargs.s3", what)
    refuse_fields(connection_id, config, _CONFIG_UNREAD)
    if (signature := config.get("signature_version", "s3v4")) not in _SIGNATURES:
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has signature_version={signature!r} in config_kwargs; "
            f"choose one of {', '.join(_SIGNATURES)}"
        )
    if unused := sorted(set(config) - _CONFIG_READ):
        log.warning(
            "connection %r: gateways have retries, timeouts and pools of their own; config_kwargs"
            " does not change %s",
            connection_id,
            ", ".join(unused),
        )
    return {**extra, "config_kwargs": config, "service_config": services}


def _is_unsigned(extra: Mapping[str, Any]) -> bool:
    return bool(extra["config_kwargs"].get("signature_version") == "unsigned")


def _has_plain_role(extra: Mapping[str, Any]) -> bool:
    """Whether AWS STS alone gives the role, by the fields of the connection."""
    method = extra.get("assume_role_method", _METHODS[0])
    by_file = method == _WEB_IDENTITY and extra.get(f"{_WEB_IDENTITY}_federation") == "file"
    return bool(extra.get("role_arn")) and (method == _METHODS[0] or by_file)


def _keys(
    connection: ConnectionLike, connection_id: str, extra: Mapping[str, Any]
) -> dict[str, str]:
    """Login and password, or their names in the extra, or in its older `session_kwargs`."""
    older = extra["session_kwargs"]
    names = ("aws_access_key_id", "aws_secret_access_key")
    given = [(connection.login, connection.password)]
    given += [(fields.get(names[0]), fields.get(names[1])) for fields in (extra, older)]
    key, secret = next((pair for pair in given if all(pair)), (None, None))
    if not key and any(any(pair) for pair in given):
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has only half of an access key; give both the "
            "login (access key id) and the password (secret access key)"
        )
    if not key:
        return {}
    values = {"access_key_id": str(key), "secret_access_key": str(secret)}
    if token := extra.get("aws_session_token") or older.get("aws_session_token"):
        values["session_token"] = str(token)
    return values


def _role(connection_id: str, extra: Mapping[str, Any]) -> dict[str, str]:
    """The role in the form of `sendable_credentials`, as the provider's hook assumes it."""
    method = extra.get("assume_role_method", _METHODS[0])
    if method not in _METHODS:
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has assume_role_method={method!r}; choose one of "
            f"{', '.join(_METHODS)}"
        )
    federation = extra.get(f"{_WEB_IDENTITY}_federation")
    if method == _METHODS[1] or (method == _WEB_IDENTITY and federation != "file"):
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has {method}, which needs the amazon "
            "provider; install apache-airflow-providers-amazon on the workers"
        )
    session_name = re.sub(r"[^\w+=,.@-]+", "-", f"airflow_{connection_id}".lower())
    arguments = {"RoleSessionName": session_name, **extra["assume_role_kwargs"]}
    values = {
        "role_arn": str(extra["role_arn"]),
        "role_arguments": json.dumps(arguments),
        "profile": str(extra.get("profile_name", "")),
        "region": str(extra.get("region_name", "")),
        # As in the provider: the endpoint of all services does not count for roles.
        "sts_endpoint_url": extra["service_config"].get("sts", {}).get("endpoint_url", ""),
    }
    if method == _WEB_IDENTITY:
        named = extra.get(f"{_WEB_IDENTITY}_token_file")
        values["web_identity_token_file"] = named or os.getenv("AWS_WEB_IDENTITY_TOKEN_FILE", "")
        if not values["web_identity_token_file"]:
            raise ConfigurationInvalid(
                f"connection {connection_id!r} has {method} without a token; give "
                f"{_WEB_IDENTITY}_token_file"
            )
    return values
