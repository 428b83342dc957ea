"""`open_store` retries, the store below it does not; what cannot be opened is named."""

from __future__ import annotations

import pytest
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.errors import ConfigurationInvalid, StoreUnavailable
from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.stores import Credentials, StoreSpec, open_store
from skyplane_gateway.stores.options import OPTIONS
from skyplane_gateway.stores.registry import open_without_retries

CREDENTIALS = Credentials({"access_key_id": "test", "secret_access_key": "test"})
AT_ONCE = RetryPolicy(attempts=3, first_pause_s=0.0)


def failure(code: str) -> bytes:
    return f"<Error><Code>{code}</Code></Error>".encode()


def test_each_attempt_is_one_request(scripted: ScriptedServer) -> None:
    scripted.replies += [
        Reply(503, failure("SlowDown"), {"Retry-After": "0"}),
        Reply(500, failure("InternalError")),
        Reply(200, headers={"ETag": '"e"'}),
    ]
    store = open_store(scripted.spec(), CREDENTIALS, AT_ONCE)
    assert store.put("k", b"x").etag == '"e"'
    assert store.spec == scripted.spec()
    store.close()
    assert [request.body for request in scripted.requests] == [b"x"] * 3


@pytest.mark.parametrize(("options", "requests"), [({}, 3), ({"attempts": "2"}, 2)])
def test_the_attempts_are_those_of_the_store_or_of_the_policy(
    scripted: ScriptedServer, options: dict[str, str], requests: int
) -> None:
    scripted.replies += [Reply(500, failure("InternalError"))] * 4
    store = open_store(scripted.spec(**options), CREDENTIALS, AT_ONCE)
    with pytest.raises(StoreUnavailable):
        store.put("k", b"x")
    assert len(scripted.requests) == requests


KEYS = {"access_key_id": "a", "secret_access_key": "b", "account_key": "a2V5", "access_token": "t"}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("colour", "red"), "has no option 'colour'"),
        (("connections", "0"), "number from 1"),
        (("connections", "many"), "number from 1"),
        (("anonymous", "yes"), "choose one of false, true"),
        (("checksum", "maybe"), "choose one of|no option 'checksum'"),
    ],
)
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_wrong_option_is_named(kind: str, option: tuple[str, str], said: str) -> None:
    bucket = "acct/box" if kind == "azure" else "bkt"
    spec = StoreSpec(kind, bucket, "http://127.0.0.1:1", options=(option,))
    with pytest.raises(ConfigurationInvalid, match=said):
        open_without_retries(spec, Credentials(KEYS))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (StoreSpec("tape", "b"), "no store of kind 'tape'"),
        (StoreSpec("s3", "b", "localhost:9000"), "must begin with http"),
        (StoreSpec("s3", "b", options=(("sse-kms-key-id", "k"),)), "needs sse=aws:kms"),
        (StoreSpec("s3", "b", options=(("sse", "rot13"),)), "AES256"),
        (StoreSpec("s3", "b", options=(("storage-class", "DEEP_ARCHIVE"),)), "STANDARD_IA"),
        (StoreSpec("s3", "b", options=(("requester-pays", "yes"),)), "true"),
        (StoreSpec("file", "relative/path"), "must be absolute"),
        (StoreSpec("file", "/tmp", options=(("a", "b"),)), "no options"),
        (StoreSpec("azure", "acct"), "names no container"),
    ],
)
def test_what_cannot_be_opened_is_named(spec: StoreSpec, said: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=said):
        open_without_retries(spec, Credentials(KEYS))


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        ("s3", {"access_key_id": "a"}, "secret_access_key"),
        ("azure", {"account_key": "no base64"}, "copy it whole"),
        ("azure", {"access_key_id": "x"}, "account_key, sas_token or bearer_token"),
        ("gcs", {"access_key_id": "x"}, "lack access_token"),
    ],
)
def test_credentials_that_lack_something_are_named(
    kind: str, values: dict[str, str], said: str
) -> None:
    spec = StoreSpec(kind, "acct/box" if kind == "azure" else "bkt")
    with pytest.raises(ConfigurationInvalid, match=said):
        open_without_retries(spec, Credentials(values))
