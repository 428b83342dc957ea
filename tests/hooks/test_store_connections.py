"""Store credentials from Airflow connections, without any cloud provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.hooks.conftest import FakeConnection

from skyplane_gateway.common.objects import Credentials
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks import google_connection
from skyplane_orchestration.hooks.store_connections import (
    credentials_from_connection,
    location_from_connection,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import SCOPES_OPTION

BUCKET = Location("s3://bucket/key")


def resolve(connection: FakeConnection) -> dict[str, str] | None:
    credentials = credentials_from_connection(connection, "aws_prod", BUCKET)
    return None if credentials is None else credentials.to_dict()


def test_login_and_password() -> None:
    assert resolve(FakeConnection(login="AK", password="SK")) == {
        "access_key_id": "AK",
        "secret_access_key": "SK",
    }


def test_short_lived_keys_in_the_extra() -> None:
    extra = {
        "aws_access_key_id": "AK",
        "aws_secret_access_key": "SK",
        "aws_session_token": "T",
        "region_name": "eu-west-3",
    }
    assert resolve(FakeConnection(extra_dejson=extra)) == {
        "access_key_id": "AK",
        "secret_access_key": "SK",
        "session_token": "T",
    }


def test_an_empty_connection_means_the_workers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "own")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    found = resolve(FakeConnection())
    assert found is not None
    assert found["access_key_id"] == "own"


def test_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[nightly]\naws_access_key_id = PK\naws_secret_access_key = PS\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    found = resolve(FakeConnection(extra_dejson={"profile_name": "nightly"}))
    assert found is not None
    assert found["access_key_id"] == "PK"


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        (FakeConnection(login="AK"), "half of an access key"),
        (FakeConnection(password="SK"), "half of an access key"),
        (FakeConnection(conn_type="postgres"), "type 'postgres'"),
        (FakeConnection(extra_dejson={"verify": False}), "verify=False"),
        (FakeConnection(extra_dejson={"host": "http://minio"}), "host.*give endpoint_url"),
        (FakeConnection(extra_dejson={"config_kwargs": {"proxies": {"a": "b"}}}), "HTTPS_PROXY"),
        (FakeConnection(extra_dejson={"config_kwargs": {"signature_version": "s3"}}), "s3v4"),
        (
            FakeConnection(extra_dejson={"service_config": "s3"}),
            "service_config must be",
        ),
    ],
)
def test_invalid_connections_are_refused(connection: FakeConnection, words: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=words):
        resolve(connection)


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Records the requests to Google's token service."""
    asked: list[dict[str, str]] = []

    def answer(kind: str, values: dict[str, str]) -> Credentials:
        assert kind == "gcs"
        asked.append({name: value for name, value in values.items() if value})
        return Credentials({"access_token": "t"})

    monkeypatch.setattr(google_connection, "sendable_credentials", answer)
    return asked


@pytest.mark.parametrize(
    ("extra", "asked"),
    [
        ({}, {}),
        ({"key_path": "/k.json", "project": "p"}, {"service_account_file": "/k.json"}),
        ({"keyfile_dict": {"a": 1}}, {"service_account_json": '{"a": 1}'}),
        ({"extra__google_cloud_platform__keyfile_dict": "{}"}, {"service_account_json": "{}"}),
        (
            {"impersonation_chain": ["x", "y"], "scope": "a,b"},
            {"impersonate": "x,y", "scopes": "a,b"},
        ),
        ({"impersonation_chain": "x"}, {"impersonate": "x"}),
    ],
)
def test_google_connections(
    google: list[dict[str, str]], extra: dict[str, Any], asked: dict[str, str]
) -> None:
    connection = FakeConnection("google_cloud_platform", extra_dejson=extra)
    found = credentials_from_connection(connection, "gcp", Location("gs://bucket/"))
    assert dict(found or {}) == {"access_token": "t"}
    assert google == [asked]


def test_scopes_of_a_location_count_before_those_of_the_connection(
    google: list[dict[str, str]],
) -> None:
    connection = FakeConnection("google_cloud_platform", extra_dejson={"scope": "stores"})
    location = Location("gs://any/", options={SCOPES_OPTION: "instances"})
    credentials_from_connection(connection, "gcp", location)
    assert google == [{"scopes": "instances"}]


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        (FakeConnection(), "needs one of type 'google_cloud_platform'"),
        (
            FakeConnection("google_cloud_platform", extra_dejson={"key_secret_name": "s"}),
            "key_secret_name, which is not supported; give keyfile_dict or key_path",
        ),
        (
            FakeConnection(
                "google_cloud_platform", extra_dejson={"key_path": "a", "keyfile_dict": "{}"}
            ),
            "both keyfile_dict and key_path",
        ),
    ],
)
def test_invalid_google_connections_are_refused(connection: FakeConnection, words: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=words):
        credentials_from_connection(connection, "gcp", Location("gs://bucket/"))


def test_a_file_takes_no_credentials() -> None:
    with pytest.raises(ConfigurationInvalid, match="no credentials"):
        credentials_from_connection(FakeConnection(), "aws_prod", Location("file:///data/"))


@pytest.mark.parametrize(
    "connection",
    [FakeConnection("wasb"), FakeConnection("wasb", login="account", password="a2V5")],
)
def test_a_token_of_another_service_than_storage_needs_a_principal(
    connection: FakeConnection,
) -> None:
    location = Location("az://any/any/", options={SCOPES_OPTION: "instances"})
    with pytest.raises(ConfigurationInvalid, match="needs a service principal, of which tenant_id"):
        credentials_from_connection(connection, "azure_prod", location)


def resolve_azure(**fields: Any) -> dict[str, str] | None:
    connection = FakeConnection("wasb", **fields)
    location = Location("az://account/container/")
    credentials = credentials_from_connection(connection, "azure_prod", location)
    return None if credentials is None else credentials.to_dict()


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"login": "account", "password": "a2V5"}, {"account_key": "a2V5"}),
        ({"extra_dejson": {"shared_access_key": "a2V5"}}, {"account_key": "a2V5"}),
        (
            {"extra_dejson": {"extra__wasb__connection_string": "AccountName=a;AccountKey=a2V5"}},
            {"account_key": "a2V5"},
        ),
        ({"extra_dejson": {"account_key": "a2V5"}}, {"account_key": "a2V5"}),
        ({"extra_dejson": {"sas_token": "sv=1&sig=x"}}, {"sas_token": "sv=1&sig=x"}),
        (
            {"password": "a2V5", "extra_dejson": {"sas_token": "sv=1&sig=x"}},
            {"sas_token": "sv=1&sig=x"},
        ),
        (
            {"extra_dejson": {"sas_token": "https://a.blob.core.windows.net/?sv=1&sig=x"}},
            {"sas_token": "sv=1&sig=x"},
        ),
    ],
)
def test_azure_connections(fields: dict[str, Any], found: dict[str, str]) -> None:
    assert resolve_azure(**fields) == found


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"extra_dejson": {"tenant_id": "t"}}, "client_id and client_secret"),
        ({"extra_dejson": {"managed_identity_client_id": "c"}}, "workload_identity_tenant_id"),
        ({"extra_dejson": {"client_secret_auth_config": {"a": 1}}}, "AZURE_AUTHORITY_HOST"),
        ({"extra_dejson": {"connection_string": "AccountName=a"}}, "neither AccountKey"),
    ],
)
def test_azure_connections_that_cannot_be_used(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=says):
        resolve_azure(**fields)


def placed(connection: FakeConnection, location: Location) -> Location:
    return location_from_connection(connection, "store", location)


@pytest.mark.parametrize("conn_type", ["generic", "", None])
def test_a_connection_without_a_type_is_read_with_a_warning(
    conn_type: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    found = resolve(FakeConnection(conn_type, login="AK", password="SK"))
    assert found == {"access_key_id": "AK", "secret_access_key": "SK"}
    assert "is read as one of type 'aws'" in caplog.text


@pytest.mark.parametrize(
    ("extra", "endpoint", "region"),
    [
        ({}, "", ""),
        ({"region_name": "eu-west-3"}, "", ""),
        ({"endpoint_url": "http://one", "region_name": "eu-west-3"}, "http://one", "aws:eu-west-3"),
        (
            {"endpoint_url": "http://one", "service_config": {"s3": {"endpoint_url": "http://s3"}}},
            "http://s3",
            "",
        ),
    ],
)
def test_endpoint_and_region_of_an_aws_connection(
    extra: dict[str, Any], endpoint: str, region: str
) -> None:
    found = placed(FakeConnection(extra_dejson=extra), BUCKET)
    assert (found.endpoint_url, found.region) == (endpoint, region)


def test_the_locations_own_endpoint_and_region_count_first() -> None:
    own = Location("s3://bucket/", "aws:us-east-1", "http://own")
    extra = {"endpoint_url": "http://one", "region_name": "eu-west-3"}
    assert placed(FakeConnection(extra_dejson=extra), own) == own


def test_s3_options_of_an_aws_connection(caplog: pytest.LogCaptureFixture) -> None:
    config = {"s3": {"addressing_style": "path"}, "signature_version": "unsigned", "retries": {}}
    connection = FakeConnection(extra_dejson={"config_kwargs": config})
    assert placed(connection, BUCKET).options == {"addressing": "path", "anonymous": "true"}
    assert resolve(connection) is None
    assert "does not change retries" in caplog.text


def test_older_fields_with_keys() -> None:
    keys = {"aws_access_key_id": "AK", "aws_secret_access_key": "SK", "aws_session_token": "T"}
    found = resolve(FakeConnection(extra_dejson={"session_kwargs": keys}))
    assert found == {"access_key_id": "AK", "secret_access_key": "SK", "session_token": "T"}


def test_an_anonymous_google_connection() -> None:
    connection = FakeConnection("google_cloud_platform", extra_dejson={"is_anonymous": True})
    location = Location("gs://bucket/")
    assert placed(connection, location).options == {"anonymous": "true"}
    assert credentials_from_connection(connection, "gcp", location) is None


@pytest.mark.parametrize(
    ("fields", "endpoint"),
    [
        ({"login": "account"}, ""),
        ({"host": "account"}, ""),
        ({"host": "https://account.blob.core.windows.net/"}, ""),
        ({"host": "account.dfs.core.windows.net"}, ""),
        ({"host": "account.privatelink.example.com"}, "https://account.privatelink.example.com"),
        ({"host": "http://127.0.0.1:10000/account"}, "http://127.0.0.1:10000/account"),
        (
            {
                "extra_dejson": {
                    "connection_string": "AccountName=account;AccountKey=a2V5;"
                    "BlobEndpoint=http://127.0.0.1:10000/account/"
                }
            },
            "http://127.0.0.1:10000/account",
        ),
        ({"extra_dejson": {"sas_token": "https://10.0.0.4/?sv=1&sig=x"}}, "https://10.0.0.4"),
        ({"login": "client", "password": "s", "extra_dejson": {"tenant_id": "t"}}, ""),
    ],
)
def test_endpoint_of_an_azure_connection(fields: dict[str, Any], endpoint: str) -> None:
    found = placed(FakeConnection("wasb", **fields), Location("az://account/container/"))
    assert found.endpoint_url == endpoint


def test_an_azure_connection_of_another_account_is_refused() -> None:
    connection = FakeConnection("wasb", login="other", password="a2V5")
    with pytest.raises(ConfigurationInvalid, match="of the storage account 'other'"):
        placed(connection, Location("az://account/container/"))
