"""Roles of `aws` connections, by AWS STS as moto plays it; with the amazon provider and without."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws
from tests.hooks.conftest import FakeConnection
from tests.hooks.test_store_connections import BUCKET

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.store_connections import credentials_from_connection

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


def resolve(extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    document = {"conn_type": "aws", "login": "AK", "password": "SK", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_ROLE", json.dumps(document))
    connection = FakeConnection(login="AK", password="SK", extra_dejson=extra)
    found = credentials_from_connection(connection, "aws_role", BUCKET)
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
