"""Services without conditional writes: with `preconditions=checked` a HEAD takes their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.faults.http_proxy import FaultProxy, running
from tests.faults.http_rules import Rule
from tests.gateway.stores.async_first import AsyncFirst
from tests.gateway.stores.by_sink import put_by_sink
from tests.gateway.stores.scripted import CREDENTIALS

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import NotFound, PreconditionFailed, StoreError
from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, Precondition, StoreSpec
from skyplane_gateway.stores import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_gateway.stores.wrappers.rate_limiter import RateLimiter
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

BODY = b"new body"
CRC32C = crc32c(BODY)
#: As Backblaze B2 answers.
REFUSED = Rule(
    "answer",
    "PUT|POST|DELETE",
    header="^If-(None-)?Match:",
    times=0,
    status=501,
    body=b"<Error><Code>NotImplemented</Code><Message>A header you provided implies "
    b"functionality that is not implemented</Message></Error>",
)

Write = Callable[[ObjectStore, Precondition], Any]


def put(store: ObjectStore, precondition: Precondition) -> Any:
    return store.put("k", BODY, precondition=precondition)


def async_put(store: ObjectStore, precondition: Precondition) -> Any:
    by = AsyncFirst(store)
    none = ObjectAttributes()
    return by.put("k", BODY, attributes=none, precondition=precondition, crc32c=CRC32C)


def complete(store: ObjectStore, precondition: Precondition) -> Any:
    upload_id = store.create_upload("k")
    part = store.put_part("k", upload_id, 1, BODY, offset=0, crc32c=CRC32C)
    size = len(BODY)
    return store.complete_upload(
        "k", upload_id, [part], precondition=precondition, size_bytes=size, crc32c=CRC32C
    )


def delete(store: ObjectStore, precondition: Precondition) -> Any:
    return store.delete("k", if_match=precondition.if_match)


WRITES: dict[str, Write] = {"put": put, "async put": async_put, "complete": complete}


@pytest.fixture
def proxy(moto_url: str) -> Iterator[FaultProxy]:
    with running(moto_url, [REFUSED]) as found:
        yield found


@pytest.fixture
def opened(proxy: FaultProxy) -> Iterator[Callable[..., Any]]:
    stores: list[Any] = []

    def make(**options: str) -> Any:
        chosen = tuple(sorted(options.items()))
        spec = StoreSpec("s3", "unconditional", proxy.url, "us-east-1", chosen)
        stores.append(open_without_retries(spec, CREDENTIALS))
        stores[-1]._client.create_bucket(Bucket="unconditional")
        stores[-1].delete("k")
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_under_its_precondition(opened: Any, write: str) -> None:
    store, do = opened(preconditions="checked"), WRITES[write]
    gone = Precondition(if_match='"e"')
    with pytest.raises(PreconditionFailed):
        do(store, gone)
    do(store, IF_ABSENT)
    with pytest.raises(PreconditionFailed):
        do(store, IF_ABSENT)
    with pytest.raises(PreconditionFailed):
        do(store, gone)
    do(store, Precondition(if_match=store.head("k").etag))
    assert store.head("k").size_bytes == len(BODY)


def test_a_delete_is_of_one_version(opened: Any) -> None:
    store = opened(preconditions="checked")
    store.put("k", BODY)
    with pytest.raises(PreconditionFailed):
        delete(store, Precondition(if_match='"e"'))
    delete(store, Precondition(if_match=store.head("k").etag))
    with pytest.raises(NotFound):
        store.head("k")


def test_a_write_whose_answer_is_lost_is_found(opened: Any, proxy: FaultProxy) -> None:
    plain = opened(preconditions="checked")
    store = RetryingStore(plain, RateLimiter(), pause=lambda *_: False)
    proxy.schedule.rules.insert(0, Rule("drop-reply", "PUT", "/k"))
    assert put_by_sink(store, "k", BODY).size_bytes == len(BODY)


@pytest.mark.parametrize("write", ["put", "complete"])
def test_without_the_option_the_error_names_it(opened: Any, write: str) -> None:
    with pytest.raises(StoreError, match="option preconditions=checked") as raised:
        WRITES[write](opened(), IF_ABSENT)
    assert raised.value.is_permanent
