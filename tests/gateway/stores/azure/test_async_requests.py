"""Small objects of Azure Blob Storage over asyncio."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gateway.stores.async_first import AsyncFirst

from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.azure.credentials import Identity
from skyplane_gateway.stores.base import read_exactly
from skyplane_gateway.stores.registry import open_without_retries


@pytest.fixture
def first(azure: Any) -> Any:
    """The store over asyncio first; `azure.shared` is in threads only."""
    return AsyncFirst(azure.open())


def read(store: Any, key: str, length: int, etag: str | None) -> bytes:
    with store.read(key, offset=0, length=length, if_match=etag) as reader:
        return bytes(read_exactly(reader, length))


def test_the_token_is_sent(scripted: Any, reply: Any) -> None:
    spec = StoreSpec("azure", "acct/box", scripted.url)
    store = AsyncFirst(open_without_retries(spec, Credentials({"bearer_token": "t"})))
    scripted.replies.append(reply(206, b"ab", {"Content-Range": "bytes 0-1/2", "ETag": '"7"'}))
    assert read(store, "a/b", 2, '"7"') == b"ab"
    (request,) = scripted.requests
    sent = request.headers
    assert (request.path, store.settled) == ("/acct/box/a/b", 1)
    assert (sent["authorization"], sent["if-match"]) == ("Bearer t", '"7"')


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": "bytes 0-2/3", "ETag": '"7"'},
        {"Content-Range": "bytes 0-1/2", "ETag": '"8"'},
        {"ETag": '"7"'},
    ],
)
def test_an_answer_for_something_else_is_not_taken(
    scripted: Any, reply: Any, headers: dict[str, str]
) -> None:
    spec = StoreSpec("azure", "acct/box", scripted.url)
    store = AsyncFirst(open_without_retries(spec, Credentials({"account_key": "a2V5"})))
    scripted.replies += [reply(206, b"ab", headers), reply(500)]
    with pytest.raises(StoreUnavailable):
        read(store, "k", 2, '"7"')
    assert store.settled == 0


def test_the_identity_of_the_machine_is_looked_up_by_a_thread() -> None:
    assert not Identity().is_ready
