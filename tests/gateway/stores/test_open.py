"""`open_store` retries; the store below it does not."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.stores import Credentials, open_store

CREDENTIALS = Credentials({"access_key_id": "test", "secret_access_key": "test"})
AT_ONCE = RetryPolicy(attempts=3, first_pause_s=0.0)


def failure(code: str) -> bytes:
    return f"<Error><Code>{code}</Code></Error>".encode()


def test_each_attempt_is_one_request(scripted: Any, reply: Any) -> None:
    scripted.replies += [
        reply(503, failure("SlowDown"), {"Retry-After": "0"}),
        reply(500, failure("InternalError")),
        reply(200, headers={"ETag": '"e"'}),
    ]
    store = open_store(scripted.spec(), CREDENTIALS, AT_ONCE)
    assert store.put("k", b"x").etag == '"e"'
    assert store.spec == scripted.spec()
    store.close()
    assert [request.body for request in scripted.requests] == [b"x"] * 3


@pytest.mark.parametrize(("options", "requests"), [({}, 3), ({"attempts": "2"}, 2)])
def test_the_attempts_are_those_of_the_store_or_of_the_policy(
    scripted: Any, reply: Any, options: dict[str, str], requests: int
) -> None:
    scripted.replies += [reply(500, failure("InternalError"))] * 4
    store = open_store(scripted.spec(**options), CREDENTIALS, AT_ONCE)
    with pytest.raises(StoreUnavailable):
        store.put("k", b"x")
    assert len(scripted.requests) == requests
