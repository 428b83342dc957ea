"""What a service of credentials may not answer: a proxy's page, and values that are missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.errors import StoreError
from skyplane_gateway.stores import ambient_credentials, sendable_credentials

STS = (
    '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
    "<Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>SK</SecretAccessKey>"
    "<SessionToken>ST</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
    "</AssumeRoleResult></AssumeRoleResponse>"
)
CONTAINER = {
    "AccessKeyId": "AK",
    "SecretAccessKey": "SK",
    "Token": "T",
    "Expiration": "2099-01-01T00:00:00Z",
}
TOKEN = {"access_token": "t", "expires_in": 3600}
SHAPES = (
    *("", "<html><br></html>", "<html/>", "upstream timeout", "{}", "[]", "null", "7", '"text"'),
    '{"error": {"code": 500}}',
    "<ListAllMyBucketsResult/>",
    "[" * 30_000,
)


def sts(url: str) -> object:
    keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    role = {"role_arn": "arn:aws:iam::123456789012:role/r", "sts_endpoint_url": url}
    role["role_arguments"] = '{"RoleSessionName": "skyplane"}'
    return sendable_credentials("s3", {**keys, **role})


def container(url: str) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            patch.delenv(name, raising=False)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            patch.setenv(name, "/nonexistent")
        patch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/get")
        return ambient_credentials("s3")


def without(document: dict[str, Any]) -> list[str]:
    """The document without each of its values, and with others in their place."""
    texts, odds = [], (None, list[str](), "")
    for name in document:
        texts.append(json.dumps({key: document[key] for key in document if key != name}))
        texts += [json.dumps({**document, name: odd}) for odd in odds]
    return texts


def refused(
    scripted: ScriptedServer, shapes: list[str], asked: Callable[[], object], good: str
) -> list[tuple[str, str]]:
    """The shapes that raise no error of this project, or one that tells nothing."""

    def answer(text: str) -> None:
        headers = {"Content-Type": "application/json"}
        scripted.replies[:] = [Reply(200, text.encode(), headers)] * 20

    answer(good)
    assert asked()
    wrong = []
    for shape in shapes:
        answer(shape)
        try:
            wrong.append((shape[:60], f"taken for {asked()}"))
        except StoreError as error:
            if "\n" in error.message or ": 500;" in error.message:
                wrong.append((shape[:60], error.message))
        except Exception as error:  # noqa: BLE001
            wrong.append((shape[:60], repr(error)))
    return wrong


def test_answers_of_sts(scripted: ScriptedServer) -> None:
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration", "Credentials")
    lacking = [STS.replace(name, "Other") for name in names]
    lacking += [STS.replace(f">{text}<", "><") for text in ("AK", "SK", "ST")]
    shapes = [*SHAPES, *lacking, STS[:200]]
    assert refused(scripted, shapes, lambda: sts(scripted.url), STS) == []


def test_answers_of_a_container(scripted: ScriptedServer) -> None:
    # The token and the expiry are optional there.
    needed = {name: CONTAINER[name] for name in ("AccessKeyId", "SecretAccessKey")}
    shapes = [*SHAPES, *without(needed)]
    good = json.dumps(CONTAINER)
    assert refused(scripted, shapes, lambda: container(scripted.url), good) == []


def test_answers_of_googles_token_service(scripted: ScriptedServer, service_account: str) -> None:
    shapes = [*SHAPES, *without({"access_token": "t"}), '{"access_token": "t", "expires_in": []}']

    def asked() -> object:
        return sendable_credentials("gcs", {"service_account_json": service_account})

    assert refused(scripted, shapes, asked, json.dumps(TOKEN)) == []
