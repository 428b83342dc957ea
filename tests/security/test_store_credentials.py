from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from skyplane_gateway.common.objects import Credentials
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security import store_credentials
from skyplane_orchestration.security.store_credentials import SCOPES_OPTION, CredentialSources


def s3(reference: str) -> Location:
    return Location("s3://bucket/", credential_ref=reference)


@pytest.fixture(autouse=True)
def _no_ambient_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "credentials").write_text(
        "[prod]\naws_access_key_id = AKPROFILE\naws_secret_access_key = hush-profile\n"
    )


def test_variables_with_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRC_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("SRC_SECRET_ACCESS_KEY", "hush")
    found = CredentialSources().resolve(s3("env:SRC"))
    assert found is not None
    assert dict(found) == {"access_key_id": "AK", "secret_access_key": "hush"}
    monkeypatch.setenv("SRC_SESSION_TOKEN", "token")
    again = CredentialSources().resolve(s3("env:SRC"))
    assert again is not None
    assert again["session_token"] == "token"


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRC_ACCESS_KEY_ID", "AK")
    with pytest.raises(ConfigurationInvalid, match="SRC_SECRET_ACCESS_KEY"):
        CredentialSources().resolve(s3("env:SRC"))


def test_a_profile() -> None:
    found = CredentialSources().resolve(s3("profile:prod"))
    assert found is not None
    assert found["access_key_id"] == "AKPROFILE"
    with pytest.raises(ConfigurationInvalid, match="staging"):
        CredentialSources().resolve(s3("profile:staging"))


def test_an_empty_reference_means_the_credentials_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert CredentialSources().resolve(s3("")) is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKMINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-mine")
    found = CredentialSources().resolve(s3(""))
    assert found is not None
    assert found["access_key_id"] == "AKMINE"
    assert CredentialSources(is_ambient_allowed=False).resolve(s3("")) is None


def test_files_need_none() -> None:
    assert CredentialSources().resolve(Location("/data/")) is None


def test_a_scheme_of_an_orchestrator() -> None:
    seen = []

    def connection(name: str, location: Location) -> Credentials:
        seen.append((name, location.url))
        return Credentials({"access_key_id": name})

    sources = CredentialSources({"airflow": connection})
    assert dict(sources.resolve(s3("airflow:my:conn")) or {}) == {"access_key_id": "my:conn"}
    assert seen == [("my:conn", "s3://bucket/")]


@pytest.mark.parametrize("reference", ["AKIAEXAMPLE", "env:", "vault:x", ":x"])
def test_an_unknown_form_is_refused_and_the_known_forms_are_named(reference: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=r"env:\.\.\., profile:\.\.\."):
        CredentialSources().resolve(s3(reference))


def test_google_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Location("gs://bucket/", credential_ref="env:G")
    with pytest.raises(ConfigurationInvalid, match="one of the variables G_ACCESS_TOKEN, G_SERV"):
        CredentialSources().resolve(place)
    monkeypatch.setenv("G_ACCESS_TOKEN", "ya29.x")
    assert dict(CredentialSources().resolve(place) or {}) == {"access_token": "ya29.x"}
    monkeypatch.delenv("G_ACCESS_TOKEN")
    monkeypatch.setenv("G_SERVICE_ACCOUNT_FILE", "/no/such/key.json")
    with pytest.raises(ConfigurationInvalid, match=r"/no/such/key\.json' cannot"):
        CredentialSources().resolve(place)
    with pytest.raises(ConfigurationInvalid, match="no profiles"):
        CredentialSources().resolve(Location("gs://bucket/", credential_ref="profile:x"))


def test_a_location_may_name_the_scopes_of_googles_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def exchanged(kind: str, values: Mapping[str, str]) -> Credentials:
        asked.append(values["scopes"])
        return Credentials({"access_token": "t"})

    monkeypatch.setattr(store_credentials, "sendable_credentials", exchanged)
    monkeypatch.setenv("G_IMPERSONATE", "mover@project.iam.gserviceaccount.com")
    for options in ({SCOPES_OPTION: "one,two"}, {}):
        place = Location("gs://bucket/", credential_ref="env:G", options=options)
        CredentialSources().resolve(place)
    assert asked == ["one,two", ""]


def test_a_principal_of_azure_gets_a_token_of_the_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, str]] = []

    def exchanged(kind: str, values: Mapping[str, str]) -> Credentials:
        asked.append(values)
        return Credentials({"bearer_token": "t"})

    monkeypatch.setattr(store_credentials, "sendable_credentials", exchanged)
    # A key of storage does not count then.
    for name in ("ACCOUNT_KEY", "TENANT_ID", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.setenv(f"A_{name}", name.lower())
    options = {SCOPES_OPTION: "one"}
    CredentialSources().resolve(Location("az://any/any/", credential_ref="env:A", options=options))
    names = ("tenant_id", "client_id", "client_secret")
    assert asked == [{**{name: name for name in names}, "scopes": "one"}]


@pytest.mark.parametrize(
    "place",
    [
        Location("gs://bucket/", endpoint_url="http://127.0.0.1:4443"),
        Location("gs://bucket/", options={"anonymous": "true"}),
        Location("s3://bucket/", options={"anonymous": "true"}),
    ],
)
def test_places_that_take_no_identity(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKMINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-mine")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/key.json")
    assert CredentialSources().resolve(place) is None


def test_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRC_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("SRC_SECRET_ACCESS_KEY", "hush")
    found = CredentialSources().resolve(s3("env:SRC"))
    assert "hush" not in f"{found} {found!r}"


def azure(reference: str) -> Location:
    return Location("az://account/container/", credential_ref=reference)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"ACCOUNT_KEY": "a2V5"}, {"account_key": "a2V5"}),
        (
            {"CONNECTION_STRING": "AccountName=account;AccountKey=a2V5==;EndpointSuffix=x"},
            {"account_key": "a2V5=="},
        ),
        (
            {"SAS_TOKEN": "?se=2026-11-23T10%3A00%3A00Z&sig=hush"},
            {"sas_token": "?se=2026-11-23T10%3A00%3A00Z&sig=hush", "expires_at": "1795428000"},
        ),
        (
            {"CONNECTION_STRING": "SharedAccessSignature=sv=1&sig=hush"},
            {"sas_token": "sv=1&sig=hush"},
        ),
    ],
)
def test_variables_of_azure(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"DST_{name}", value)
    assert dict(CredentialSources().resolve(azure("env:DST")) or {}) == found


def test_missing_variables_of_azure_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DST_TENANT_ID", "t")
    with pytest.raises(ConfigurationInvalid, match=r"DST_ACCOUNT_KEY.*DST_CLIENT_SECRET"):
        CredentialSources().resolve(azure("env:DST"))


def test_azure_has_no_profiles() -> None:
    with pytest.raises(ConfigurationInvalid, match="Azure has no profiles"):
        CredentialSources().resolve(azure("profile:prod"))


def test_the_variables_of_the_azure_cli_are_those_of_one_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    assert dict(CredentialSources().resolve(azure("")) or {}) == {"account_key": "a2V5"}
    anonymous = Location("az://account/container/", options={"anonymous": "true"})
    assert CredentialSources().resolve(anonymous) is None
    assert CredentialSources(is_ambient_allowed=False).resolve(azure("")) is None
