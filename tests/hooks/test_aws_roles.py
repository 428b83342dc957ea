"""Roles of `aws` connections, by AWS STS as moto plays it; with the amazon provider and without."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from moto import mock_aws
from tests.hooks.conftest import FakeConnection
from tests.hooks.test_store_connections import BUCKET

from skyplane_gateway.stores import Credentials, Reach, StoreSpec, limited_credentials
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.store_connections import credentials_from_connection
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import UNASSUMED_OPTION

#: As gateways need its credentials.
UNASSUMED: Final = replace(BUCKET, options={UNASSUMED_OPTION: "true"})
_ROLE = {
    "role_arn": "arn:aws:iam::123456789012:role/reader",
    "assume_role_kwargs": {"ExternalId": "42", "DurationSeconds": 3600},
    "region_name": "eu-west-3",
}


@pytest.fixture(params=["provider", "fields"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the provider is there."""
    if request.param == "fields":
        monkeypatch.setitem(sys.modules, "airflow.providers.amazon.aws.hooks.base_aws", None)
    return str(request.param)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of the calls to STS."""
    from botocore.client import BaseClient

    calls: list[dict[str, Any]] = []
    # botocore's stubs leave it out.
    real = BaseClient._make_api_call  # type: ignore[attr-defined]

    def noted(self: Any, operation: str, arguments: dict[str, Any]) -> Any:
        calls.append({"operation": operation, **arguments})
        return real(self, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    return calls


def resolve(
    extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch, place: Location = BUCKET
) -> dict[str, str]:
    document = {"conn_type": "aws", "login": "AK", "password": "SK", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_ROLE", json.dumps(document))
    connection = FakeConnection(login="AK", password="SK", extra_dejson=extra)
    found = credentials_from_connection(connection, "aws_role", place)
    assert found is not None
    return found.to_dict()


@mock_aws
def test_a_role_with_an_external_id(
    way: str, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = resolve(_ROLE, monkeypatch)
    assert set(first) == {"access_key_id", "secret_access_key", "session_token", "expires_at"}
    (call,) = asked
    assert call == {
        "operation": "AssumeRole",
        "RoleArn": _ROLE["role_arn"],
        "RoleSessionName": "airflow_aws_role",
        "ExternalId": "42",
        "DurationSeconds": 3600,
    }
    # The renewal in a long transfer asks again.
    assert resolve(_ROLE, monkeypatch)["access_key_id"] != first["access_key_id"]


@mock_aws
def test_a_role_by_a_web_identity(
    way: str, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("a.b.c")
    method = "assume_role_with_web_identity"
    found = resolve(
        {
            "role_arn": _ROLE["role_arn"],
            "assume_role_method": method,
            f"{method}_federation": "file",
            f"{method}_token_file": str(token),
        },
        monkeypatch,
    )
    assert found["session_token"]
    assert asked[0]["operation"] == "AssumeRoleWithWebIdentity"
    assert asked[0]["WebIdentityToken"] == "a.b.c"


@mock_aws
def test_a_role_for_gateways_is_assumed_once_with_their_policy(
    way: str, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = resolve(_ROLE, monkeypatch, UNASSUMED)
    assert asked == []
    limited = limited_credentials(Credentials(found), [Reach(StoreSpec("s3", "b"), ("p/",))])
    assert limited["session_token"]
    (call,) = asked
    policy = json.loads(call.pop("Policy"))
    assert policy["Statement"][0]["Resource"] == ["arn:aws:s3:::b/p/*"]
    assert call == {
        "operation": "AssumeRole",
        "RoleArn": _ROLE["role_arn"],
        "RoleSessionName": "airflow_aws_role",
        "ExternalId": "42",
        "DurationSeconds": 3600,
    }


@mock_aws
def test_a_role_for_gateways_that_is_no_arn_is_an_error_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = resolve({"role_arn": "reader"}, monkeypatch, UNASSUMED)
    with pytest.raises(ConfigurationInvalid, match="arguments for assuming the role reader"):
        limited_credentials(Credentials(found), [Reach(StoreSpec("s3", "b"), ("p/",))])


def test_what_only_the_provider_can_assume_is_assumed_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A method that needs it, or a session of the user's own, which may be of another role."""
    opened: list[str] = []

    class Hook:
        def __init__(self, aws_conn_id: str, client_type: str) -> None:
            opened.append(aws_conn_id)

        def get_session(self) -> Any:
            keys = SimpleNamespace(access_key="a", secret_key="b", token="c")
            frozen = SimpleNamespace(get_frozen_credentials=lambda: keys)
            return SimpleNamespace(get_credentials=lambda: frozen)

    monkeypatch.setattr("airflow.providers.amazon.aws.hooks.base_aws.AwsBaseHook", Hook)
    for method in ("assume_role_with_saml", "assume_role_with_web_identity"):
        found = resolve({**_ROLE, "assume_role_method": method}, monkeypatch, UNASSUMED)
        assert "role_arn" not in found
    monkeypatch.setenv("AIRFLOW__AWS__SESSION_FACTORY", "own.factory")
    assert "role_arn" not in resolve(_ROLE, monkeypatch, UNASSUMED)
    assert opened == ["aws_role"] * 3


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"assume_role_method": "other"}, "choose one of assume_role"),
        (
            {"assume_role_method": "assume_role_with_saml"},
            "install apache-airflow-providers-amazon",
        ),
        ({"assume_role_kwargs": {"Externalid": "42"}}, "not those of AWS STS"),
    ],
)
def test_roles_that_cannot_be_assumed_without_the_provider(
    extra: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.amazon.aws.hooks.base_aws", None)
    with pytest.raises(ConfigurationInvalid, match=says):
        resolve({**_ROLE, **extra}, monkeypatch)
