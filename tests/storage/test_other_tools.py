"""What tools are told of a place: all that they need, and no secret among their words."""

from __future__ import annotations

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.other_tools import TOOLS, Command, access_to

SECRETS = {
    "K_ACCESS_KEY_ID": "hush-id",
    "K_SECRET_ACCESS_KEY": "hush-key",
    "K_SESSION_TOKEN": "hush-session",
    "K_ACCOUNT_KEY": "aHVzaA==",
    "K_SERVICE_ACCOUNT_FILE": "/hush.json",
}
#: A folder of each store at an endpoint of its own.
S3 = Location("s3://bucket/in/", "aws:eu-west-3", "https://s3.example.org", "env:K")
GCS = Location("gs://bucket/in/", "", "https://storage-x.p.googleapis.com", "env:K")
AZURE = Location("az://account/box/in/", "", "https://account.example.org", "env:K")


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)


def command(tool: str, place: Location, *, read_only: bool = False) -> Command:
    access = access_to(place, CredentialSources())
    words, environment = TOOLS[place.kind][tool](access, "/folder", "/cache", read_only)
    assert words[0] == tool
    assert not [word for word in words if "hush" in word or "aHVz" in word]
    assert "hush" not in repr(access)
    return words, environment


def remote(place: Location) -> dict[str, str]:
    _, environment = command("rclone", place)
    prefix = "RCLONE_CONFIG_SKYPLANE_"
    assert all(name.startswith(prefix) for name in environment)
    return {name.removeprefix(prefix).lower(): value for name, value in environment.items()}


def test_rclone_and_s3() -> None:
    words, _ = command("rclone", S3)
    assert words[:4] == ["rclone", "mount", "skyplane:bucket/in", "/folder"]
    assert "--read-only" not in words
    assert "--read-only" in command("rclone", S3, read_only=True)[0]
    wanted = {
        "type": "s3",
        "provider": "Other",
        "endpoint": "https://s3.example.org",
        "region": "eu-west-3",
        "access_key_id": "hush-id",
        "secret_access_key": "hush-key",
        "session_token": "hush-session",
        "env_auth": "False",
    }
    assert wanted.items() <= remote(S3).items()


def test_rclone_finds_the_users_own_credentials_and_those_of_a_profile() -> None:
    own = remote(Location("s3://bucket", "aws:eu-west-3"))
    assert (own["provider"], own["env_auth"], own["endpoint"]) == ("AWS", "True", "")
    named = remote(Location("s3://bucket", "aws:eu-west-3", "", "profile:team"))
    assert (named["profile"], named["env_auth"]) == ("team", "True")
    public = remote(Location("s3://bucket", "aws:eu-west-3", options={"anonymous": "true"}))
    assert public["env_auth"] == "False"


def test_rclone_and_google() -> None:
    made = remote(GCS)
    assert made["endpoint"] == "https://storage-x.p.googleapis.com/storage/v1/"
    assert made["service_account_file"] == "/hush.json"
    emulator = remote(Location("gs://bucket", "", "http://127.0.0.1:1"))
    assert (emulator["anonymous"], emulator["env_auth"]) == ("True", "False")


def test_rclone_and_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    made = remote(AZURE)
    assert (made["type"], made["account"], made["key"]) == ("azureblob", "account", "aHVzaA==")
    monkeypatch.delenv("K_ACCOUNT_KEY")
    monkeypatch.setenv("K_SAS_TOKEN", "?sv=1&sig=hush")
    assert remote(AZURE)["sas_url"] == "https://account.example.org/box?sv=1&sig=hush"


def test_mountpoint_for_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "other")
    words, environment = command("mount-s3", S3)
    assert words[1:3] == ["bucket", "/folder"]
    for option, value in (
        ("--prefix", "in/"),
        ("--endpoint-url", "https://s3.example.org"),
        ("--region", "eu-west-3"),
    ):
        assert words[words.index(option) + 1] == value
    assert {"--foreground", "--allow-delete", "--allow-overwrite"} <= set(words)
    assert environment["AWS_SECRET_ACCESS_KEY"] == "hush-key"
    assert environment["AWS_PROFILE"] == ""
    assert "--allow-delete" not in command("mount-s3", S3, read_only=True)[0]


def test_gcsfuse() -> None:
    access = access_to(GCS, CredentialSources())
    words, environment = TOOLS["gcs"]["gcsfuse"](access, "/folder", "/cache", False)
    assert words[-2:] == ["bucket", "/folder"]
    assert words[words.index("--only-dir") + 1] == "in"
    assert environment == {"GOOGLE_APPLICATION_CREDENTIALS": "/hush.json"}
    words, _ = TOOLS["gcs"]["gcsfuse"](access, "/folder", "/cache", True)
    assert words[words.index("-o") + 1] == "ro"


def test_blobfuse() -> None:
    words, environment = command("blobfuse2", AZURE)
    assert words[:3] == ["blobfuse2", "mount", "/folder"]
    assert words[words.index("--container-name") + 1] == "box"
    assert environment == {
        "AZURE_STORAGE_ACCOUNT": "account",
        "AZURE_STORAGE_BLOB_ENDPOINT": "https://account.example.org",
        "AZURE_STORAGE_AUTH_TYPE": "key",
        "AZURE_STORAGE_ACCESS_KEY": "aHVzaA==",
    }


def test_credentials_that_a_tool_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K_IMPERSONATE", "robot@example.org")
    with pytest.raises(ConfigurationInvalid, match="impersonate cannot be used"):
        command("rclone", GCS)
