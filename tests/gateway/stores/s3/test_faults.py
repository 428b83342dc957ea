"""Faulty answers of S3 servers, played back by a scripted server."""

from __future__ import annotations

from hashlib import md5
from typing import Any

import pytest
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common import errors
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import IF_ABSENT, PartInfo, Precondition, time_pin

BODY = b"some bytes"
ETAG = f'"{md5(BODY).hexdigest()}"'
PART = PartInfo(1, ETAG, len(BODY), crc32c(BODY))
COMPOSITE = f'"{md5(md5(BODY).digest()).hexdigest()}-1"'
DATE = "Tue, 02 Jan 2024 03:04:05 GMT"


def failure(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode()


def head_of(etag: str, size: int = len(BODY), /, **more: str) -> dict[str, str]:
    return {"ETag": etag, "Content-Length": str(size), "Last-Modified": DATE, **more}


def page(keys: list[str], *, token: str = "", truncated: bool = False, count: int = -1) -> bytes:
    contents = "".join(
        f"<Contents><Key>{key}</Key><Size>1</Size><ETag>e</ETag>"
        "<LastModified>2024-01-02T03:04:05.000Z</LastModified></Contents>"
        for key in keys
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return (
        f"<ListBucketResult><IsTruncated>{str(truncated).lower()}</IsTruncated>{more}"
        f"<KeyCount>{len(keys) if count < 0 else count}</KeyCount>{contents}</ListBucketResult>"
    ).encode()


def test_a_listing_gives_the_reason_for_a_head_answered_400(scripted: ScriptedServer) -> None:
    # The SDK requests the bucket's region first.
    store = scripted.open(Reply(400), Reply(400), Reply(400, failure("ExpiredToken")))
    with pytest.raises(errors.CredentialsExpired):
        store.head("k")
    store = scripted.open(Reply(400), Reply(400), Reply(200, page([])))
    with pytest.raises(errors.StoreError) as caught:
        store.head("k")
    assert caught.value.is_permanent


def test_a_listing_asks_for_restored_copies_once_it_has_an_archived_object(
    scripted: ScriptedServer,
) -> None:
    def classes(*rows: tuple[str, str]) -> bytes:
        body = page([key for key, _ in rows])
        for key, more in rows:
            row = f"<Key>{key}</Key>".encode()
            body = body.replace(row, row + more.encode())
        return body

    def restore(in_progress: str, more: str = "") -> str:
        state = f"<IsRestoreInProgress>{in_progress}</IsRestoreInProgress>{more}"
        return f"<RestoreStatus>{state}</RestoreStatus>"

    until = "<RestoreExpiryDate>2030-01-01T00:00:00.000Z</RestoreExpiryDate>"
    glacier, deep = (f"<StorageClass>{name}</StorageClass>" for name in ("GLACIER", "DEEP_ARCHIVE"))
    cool = "<StorageClass>GLACIER_IR</StorageClass>"
    told = (
        ("a", cool),
        ("b", glacier),
        ("c", glacier + restore("true")),
        ("d", deep + restore("false", until)),
        ("e", deep + restore("false")),
    )
    store = scripted.open(
        Reply(200, classes(("a", cool))),
        Reply(200, classes(("a", cool), ("b", glacier), ("c", glacier), ("d", deep), ("e", deep))),
        Reply(200, classes(*told)),
        Reply(200, classes(("b", glacier))),
    )
    assert [row.archived for row in store.list("a")] == [""]
    reasons = {row.key: row.archived for row in store.list("")}
    assert (reasons["a"], reasons["d"]) == ("", "")
    assert "class GLACIER: restore it" in reasons["b"]
    assert "in progress" in reasons["c"]
    assert "class DEEP_ARCHIVE: restore it" in reasons["e"]
    assert [row.archived for row in store.list("b")] == [reasons["b"]]
    asked = [seen.headers.get("x-amz-optional-object-attributes") for seen in scripted.requests]
    assert asked == [None, None, "RestoreStatus", "RestoreStatus"]


# ------------------------------------------------------------------ reading


def test_the_whole_object_in_place_of_a_range(scripted: ScriptedServer) -> None:
    store = scripted.open(*[Reply(200, BODY, {"ETag": ETAG})] * 2)
    with pytest.raises(errors.StoreUnavailable, match=r"200.*read the range again"):
        store.read("k", offset=2, length=3, if_match=None)
    assert len(scripted.requests) == 2, "the second asks for gzip: see test_decompressed"


def test_another_range_than_requested(scripted: ScriptedServer) -> None:
    store = scripted.open(Reply(206, b"om", {"ETag": ETAG, "Content-Range": "bytes 1-2/10"}))
    with pytest.raises(errors.StoreUnavailable, match="bytes 1-2/10"):
        store.read("k", offset=2, length=3, if_match=None)


@pytest.mark.parametrize("declared", [10, None], ids=["cut-off", "short"])
def test_a_body_that_ends_early(scripted: ScriptedServer, declared: int | None) -> None:
    headers = {"ETag": ETAG, "Content-Range": "bytes 0-9/10"}
    store = scripted.open(Reply(206, BODY[:4], headers, declared=declared))
    buffer = memoryview(bytearray(10))
    with store.read("k", offset=0, length=10, if_match=ETAG) as reader:
        assert reader.readinto(buffer) == 4
        with pytest.raises(errors.StoreUnavailable, match="6 bytes early"):
            reader.readinto(buffer)


def test_a_server_that_ignores_if_match(scripted: ScriptedServer) -> None:
    headers = {"ETag": '"newer"', "Content-Range": "bytes 0-9/10"}
    store = scripted.open(Reply(206, BODY, headers), Reply(200, headers=head_of('"newer"')))
    for length in (10, 0):
        with pytest.raises(errors.PreconditionFailed):
            store.read("k", offset=0, length=length, if_match=ETAG)


# ------------------------------------------------------------------ no ETag

WITHOUT = {"Content-Length": str(len(BODY)), "Last-Modified": DATE}
PIN = time_pin(1704164645, len(BODY))


def range_without(date: str = DATE) -> dict[str, str]:
    size = len(BODY)
    return {"Content-Range": f"bytes 0-{size - 1}/{size}", "Last-Modified": date}


def test_the_version_of_an_object_without_etag_is_its_time_and_size(
    scripted: ScriptedServer,
) -> None:
    listed = page(["k"]).replace(b"<ETag>e</ETag>", b"").replace(b"05.000Z", b"05.678Z")
    store = scripted.open(
        Reply(200, listed.replace(b"<Size>1<", b"<Size>%d<" % len(BODY))),
        Reply(200, headers=WITHOUT),
        Reply(206, BODY, range_without()),
    )
    assert [row.etag for row in store.list("")] == [PIN]
    assert store.head("k").etag == PIN
    with store.read("k", offset=0, length=len(BODY), if_match=PIN) as reader:
        assert reader.readinto(memoryview(bytearray(99))) == len(BODY)
    assert "if-match" not in scripted.requests[-1].headers


def test_an_object_without_etag_that_changed_is_not_read(scripted: ScriptedServer) -> None:
    later = range_without(DATE.replace(":05 ", ":06 "))
    store = scripted.open(Reply(206, BODY, later), Reply(206, BODY, range_without()))
    for pin in (PIN, ETAG):
        with pytest.raises(errors.PreconditionFailed):
            store.read("k", offset=0, length=len(BODY), if_match=pin)


@pytest.mark.parametrize("size", [len(BODY), 3])
def test_an_object_without_etag_is_compared_before_it_is_replaced(
    size: int, scripted: ScriptedServer
) -> None:
    there = Reply(200, headers={**WITHOUT, "Content-Length": str(size)})
    store = scripted.open(there, Reply(200, headers={"ETag": ETAG}))
    if size == len(BODY):
        assert store.put("k", BODY, precondition=Precondition(if_match=PIN)).etag == ETAG
    else:
        with pytest.raises(errors.PreconditionFailed):
            store.put("k", BODY, precondition=Precondition(if_match=PIN))
    assert all("if-match" not in request.headers for request in scripted.requests)


def test_a_write_answered_without_etag(scripted: ScriptedServer) -> None:
    """What is there is compared with what was sent: a proxy may have answered."""
    there = [Reply(200, headers=WITHOUT), Reply(206, BODY, range_without())]
    store = scripted.open(Reply(200), *there, Reply(200), *there, Reply(200))
    assert store.put("k", BODY).etag == PIN
    with pytest.raises(errors.StoreUnavailable, match="other bytes"):
        store.put("k", BODY[::-1])
    with pytest.raises(errors.StoreError, match="no ETag") as caught:
        store.put_part("k", "u", 1, BODY, offset=0, crc32c=crc32c(BODY))
    assert not caught.value.is_permanent, "one answer may be a proxy's"


# ------------------------------------------------------------------ listing


@pytest.mark.parametrize(
    "second",
    [
        page(["c"], token="t1", truncated=True),
        page(["c"], truncated=True),
        page(["b"]),
        page(["c"], count=2),
    ],
    ids=["repeated-token", "missing-token", "repeated-key", "short-page"],
)
def test_an_incomplete_listing_is_an_error(scripted: ScriptedServer, second: bytes) -> None:
    first = page(["a", "b"], token="t1", truncated=True)
    store = scripted.open(Reply(200, first), Reply(200, second))
    rows = store.list("")
    assert [next(rows).key, next(rows).key] == ["a", "b"]
    with pytest.raises(errors.StoreError, match="cannot be relied on"):
        list(rows)


def uploads_page(key: str, marker: str) -> bytes:
    upload = f"<Key>{key}</Key><UploadId>u</UploadId><Initiated>2026-01-01T00:00:00Z</Initiated>"
    after = f"<NextKeyMarker>{marker}</NextKeyMarker>" if marker else ""
    truncated = f"<IsTruncated>{'false' if key == 'c' else 'true'}</IsTruncated>"
    rows = f"{truncated}{after}<Upload>{upload}</Upload>"
    return f"<ListMultipartUploadsResult>{rows}</ListMultipartUploadsResult>".encode()


def test_open_uploads_are_listed_to_the_last_page(scripted: ScriptedServer) -> None:
    pages = [uploads_page("a", "a"), uploads_page("b", "b"), uploads_page("c", "")]
    store = scripted.open(*[Reply(200, page) for page in pages])
    assert [row.key for row in store.list_uploads("")] == ["a", "b", "c"]
    assert "key-marker=b" in scripted.requests[-1].path


@pytest.mark.parametrize("marker", ["a", ""], ids=["repeated", "missing"])
def test_an_incomplete_listing_of_uploads_is_an_error(
    scripted: ScriptedServer, marker: str
) -> None:
    pages = [uploads_page("a", "a"), uploads_page("b", marker)]
    store = scripted.open(*[Reply(200, page) for page in pages])
    with pytest.raises(errors.StoreError, match="marker of the next page"):
        list(store.list_uploads(""))


def test_an_unsorted_listing_is_no_listing_to_be_repeated(scripted: ScriptedServer) -> None:
    """As those of directory buckets (S3 Express One Zone)."""
    store = scripted.open(Reply(200, page(["b", "a"])))
    with pytest.raises(errors.StoreError, match=r"directory buckets .* have none") as raised:
        list(store.list(""))
    assert raised.value.is_permanent
    assert "list again" not in raised.value.message


def test_an_empty_page_that_is_not_the_last(scripted: ScriptedServer) -> None:
    store = scripted.open(Reply(200, page([], token="t1", truncated=True)), Reply(200, page(["a"])))
    assert [info.key for info in store.list("")] == ["a"]


# ------------------------------------------------------------------ lost answers


def test_a_put_refused_at_once_is_refused_even_for_an_equal_object(
    scripted: ScriptedServer,
) -> None:
    store = scripted.open(Reply(412, failure("PreconditionFailed")))
    with pytest.raises(errors.PreconditionFailed):
        store.put("k", BODY, precondition=IF_ABSENT)
    assert [request.method for request in scripted.requests] == ["PUT"]


def test_replacing_a_deleted_object_is_refused(scripted: ScriptedServer) -> None:
    store = scripted.open(Reply(404, failure("NoSuchKey")))
    with pytest.raises(errors.PreconditionFailed, match="gone"):
        store.put("k", BODY, precondition=Precondition(if_match='"x"'))


def complete(store: Any) -> Any:
    return store.complete_upload(
        "k", "u", [PART], precondition=IF_ABSENT, size_bytes=len(BODY), crc32c=crc32c(BODY)
    )


def test_a_completion_answered_without_etag(scripted: ScriptedServer) -> None:
    store = scripted.open(Reply(200, b"<CompleteMultipartUploadResult/>"))
    with pytest.raises(errors.StoreUnavailable, match="the answer has no ETag"):
        complete(store)


DONE = f"<CompleteMultipartUploadResult><ETag>{COMPOSITE}</ETag></CompleteMultipartUploadResult>"


def test_a_completed_object_of_another_size(scripted: ScriptedServer) -> None:
    store = scripted.open(Reply(200, DONE.encode()), Reply(200, headers=head_of(COMPOSITE, 9)))
    with pytest.raises(errors.StoreError, match="9 bytes"):
        complete(store)


def test_a_completed_object_is_returned_with_another_checksum(scripted: ScriptedServer) -> None:
    """The object exists. The caller compares the checksum and removes it."""
    headers = head_of(
        COMPOSITE,
        len(BODY),
        **{"x-amz-checksum-crc32c": "AAAAAA==", "x-amz-checksum-type": "FULL_OBJECT"},
    )
    store = scripted.open(
        Reply(200, DONE.encode()), Reply(200, headers=headers), checksum="trusted"
    )
    assert complete(store).crc32c == 0


def test_aborting_in_a_missing_bucket_is_an_error(scripted: ScriptedServer) -> None:
    store = scripted.open(Reply(404, failure("NoSuchUpload")), Reply(404, failure("NoSuchBucket")))
    store.abort_upload("k", "u")
    with pytest.raises(errors.NotFound):
        store.abort_upload("k", "u")
