"""`aws-chunked` says how a body was sent. Several services keep it; a copy does not get it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.gateway.stores.async_first import AsyncFirst

from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.stores.http_client import Answer
from skyplane_gateway.stores.s3.async_requests import _boto_answer
from skyplane_gateway.stores.s3.requests import attributes_of

DATE = "Tue, 02 Jan 2024 03:04:05 GMT"
ENCODINGS = {
    "aws-chunked": None,
    "AWS-Chunked": None,
    " aws-chunked ,": None,
    "aws-chunked,gzip": "gzip",
    "gzip, aws-chunked": "gzip",
    "gzip,AWS-CHUNKED , br": "gzip, br",
    "aws-chunked, aws-chunked": None,
    "gzip": "gzip",
    "gzip,br": "gzip,br",
    "x-aws-chunked": "x-aws-chunked",
}


def headers_of(encoding: str, size: int, **more: str) -> dict[str, str]:
    return {
        "ETag": '"e"',
        "Last-Modified": DATE,
        "Content-Length": str(size),
        "Content-Encoding": encoding,
        "Content-Type": "text/csv",
        **more,
    }


def by_head(scripted: Any, reply: Any, encoding: str) -> ObjectAttributes | None:
    """Copies in parts, and those by the store, begin with a HEAD."""
    found: ObjectAttributes | None = (
        scripted.open(reply(200, headers=headers_of(encoding, 3))).head("k").attributes
    )
    return found


def by_read(scripted: Any, reply: Any, encoding: str) -> ObjectAttributes | None:
    answer = reply(206, b"abc", headers_of(encoding, 3, **{"Content-Range": "bytes 0-2/3"}))
    return read_by(scripted.open(answer), 3)


def by_empty_read(scripted: Any, reply: Any, encoding: str) -> ObjectAttributes | None:
    return read_by(scripted.open(reply(200, headers=headers_of(encoding, 0))), 0)


def by_async_read(scripted: Any, reply: Any, encoding: str) -> ObjectAttributes | None:
    answer = reply(206, b"abc", headers_of(encoding, 3, **{"Content-Range": "bytes 0-2/3"}))
    store = AsyncFirst(scripted.open(answer))
    found = read_by(store, 3)
    assert store.settled == 1
    return found


def by_empty_async_read(scripted: Any, reply: Any, encoding: str) -> ObjectAttributes | None:
    store = AsyncFirst(scripted.open(reply(200, headers=headers_of(encoding, 0))))
    found = read_by(store, 0)
    assert store.settled == 1
    return found


def read_by(store: Any, length: int) -> ObjectAttributes | None:
    with store.read("k", offset=0, length=length, if_match='"e"') as reader:
        found: ObjectAttributes | None = reader.attributes
        return found


WAYS: Mapping[str, Callable[[Any, Any, str], ObjectAttributes | None]] = {
    "head": by_head,
    "read": by_read,
    "read of nothing": by_empty_read,
    "async read": by_async_read,
    "async read of nothing": by_empty_async_read,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_copy_does_not_get_the_encoding_of_the_sending(
    scripted: Any, reply: Any, way: str, encoding: str
) -> None:
    found = WAYS[way](scripted, reply, encoding)
    assert found == ObjectAttributes("text/csv", content_encoding=ENCODINGS[encoding])


def test_an_object_without_an_encoding_has_none() -> None:
    assert attributes_of({}).content_encoding is None


@pytest.mark.parametrize("names", [("aws-chunked", "gzip"), ("gzip", "aws-chunked")])
def test_a_repeated_header_is_one_list(names: tuple[str, str]) -> None:
    pairs = [(b"Content-Encoding", name.encode()) for name in names]
    assert attributes_of(_boto_answer(Answer(206, pairs, b""))).content_encoding == "gzip"
