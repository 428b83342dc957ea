"""`aws-chunked` says how a body was sent. Several services keep it; a copy does not get it."""

from __future__ import annotations

import pytest
from tests.gateway.stores.async_first import AsyncFirst
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.stores.http_client import HttpResponse
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


def headers_of(encoding: str, size: int) -> dict[str, str]:
    return {
        "ETag": '"e"',
        "Last-Modified": DATE,
        "Content-Length": str(size),
        "Content-Encoding": encoding,
        "Content-Type": "text/csv",
    }


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_copy_does_not_get_the_encoding_of_the_sending(
    scripted: ScriptedServer, encoding: str
) -> None:
    """Copies in parts, and those by the store, begin with a HEAD."""
    found = scripted.open(Reply(200, headers=headers_of(encoding, 3))).head("k").attributes
    assert found == ObjectAttributes("text/csv", content_encoding=ENCODINGS[encoding])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("size", [3, 0])
def test_nor_does_any_read(scripted: ScriptedServer, size: int, is_async: bool) -> None:
    headers = headers_of("gzip, aws-chunked", size)
    answer = Reply(206, b"abc", {**headers, "Content-Range": "bytes 0-2/3"})
    store = scripted.open(answer if size else Reply(200, headers=headers))
    by = AsyncFirst(store) if is_async else store
    with by.read("k", offset=0, length=size, if_match='"e"') as reader:
        assert reader.attributes == ObjectAttributes("text/csv", content_encoding="gzip")
    assert not is_async or by.settled == 1


def test_an_object_without_an_encoding_has_none() -> None:
    assert attributes_of({}).content_encoding is None


@pytest.mark.parametrize("names", [("aws-chunked", "gzip"), ("gzip", "aws-chunked")])
def test_a_repeated_header_is_one_list(names: tuple[str, str]) -> None:
    pairs = [(b"Content-Encoding", name.encode()) for name in names]
    assert attributes_of(_boto_answer(HttpResponse(206, pairs, b""))).content_encoding == "gzip"
