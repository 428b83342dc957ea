"""Every answer of every store, replaced by what a proxy or another service might say.

Each row of the table is a verb with the answers that it reads. Each of them in turn is replaced
by each of the shapes that are no answer, and again without each field that it needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.gateway.stores.async_first import AsyncFirst
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import StoreError
from skyplane_gateway.common.objects import Credentials, PartInfo, StoreSpec
from skyplane_gateway.stores import bucket_region, response_validation
from skyplane_gateway.stores.azure.block_lists import BlockId
from skyplane_gateway.stores.base import ObjectStore, read_exactly
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_gateway.stores.response_validation import NoAnswer, read_json, read_xml

BODY = b"some bytes"
SIZE, CRC = len(BODY), crc32c(BODY)
HTTP_DATE = "Tue, 02 Jan 2024 03:04:05 GMT"
ISO_DATE = "2024-01-02T03:04:05.000Z"
UPLOAD = "ab" * 16
#: More digits than Python reads, and a year that no clock has.
LONG, FAR_TIME = "9" * 5000, f"Tue, 02 Jan {'9' * 30} 03:04:05 GMT"
#: Answers may be no longer here, so that a long one takes no time.
LIMIT_BYTES = 100_000

CREDENTIALS = {
    "s3": Credentials({"access_key_id": "test", "secret_access_key": "test-secret"}),
    "azure": Credentials({"account_key": "a2V5"}),
    "gcs": Credentials({"access_token": "t"}),
}
BUCKETS = {"s3": "bkt", "gcs": "bkt", "azure": "acct/box"}
ASYNC = ("read", "read nothing", "put")
#: Requests over asyncio have a limit of their own, and no use for the first time of an object.
ASYNC_TAKES = ("too long", "Ellipsis timeCreated")


@dataclass(frozen=True)
class Good:
    """An answer that is one. `needs` are names of fields of its body or of headers."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verb:
    """A call, and the answers that it reads.

    `fixed` are not replaced: another row has them, or the object is written when they come.
    """

    kind: str
    name: str
    run: Callable[[Any], object]
    answers: tuple[Good, ...]
    options: tuple[tuple[str, str], ...] = ()
    fixed: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.kind} {self.name}"


# ------------------------------------------------------------------ the verbs


def read(store: ObjectStore, length: int) -> bytes:
    with store.read("k", offset=0, length=length, if_match=None) as reader:
        return bytes(read_exactly(reader, length))


def put(store: ObjectStore) -> object:
    return store.put("k", BODY, crc32c=CRC)


def put_part(store: ObjectStore) -> object:
    return store.put_part("k", UPLOAD, 1, BODY, offset=0, crc32c=CRC)


def copy_part(store: Any) -> object:
    return store.copy_part("k", UPLOAD, 1, CopySource(store.spec, "from", "7", 0, SIZE))


def complete(etag: str) -> Callable[[ObjectStore], object]:
    part = PartInfo(1, etag, SIZE, CRC)
    return lambda store: store.complete_upload("k", UPLOAD, [part], size_bytes=SIZE, crc32c=CRC)


COMMON: dict[str, Callable[[Any], object]] = {
    "check": lambda store: store.check(),
    "list": lambda store: list(store.list("")),
    "head": lambda store: store.head("k"),
    "read": lambda store: read(store, SIZE),
    "read nothing": lambda store: read(store, 0),
    "put": put,
    "create": lambda store: store.create_upload("k"),
    "put part": put_part,
    "abort": lambda store: store.abort_upload("k", UPLOAD),
    "list uploads": lambda store: list(store.list_uploads("")),
    "list parts": lambda store: store.list_parts("k", UPLOAD),
    "delete": lambda store: store.delete("k"),
    "region": lambda store: bucket_region(store.spec, CREDENTIALS[store.spec.kind]),
}


def verb(kind: str, name: str, *found: Good, **more: Any) -> Verb:
    return Verb(kind, name, more.pop("run", None) or COMMON[name], found, **more)


def s3_page(root: str, row: str, more: str = "", *, truncated: str = "false") -> bytes:
    return (
        f'<{root} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{truncated}</IsTruncated>{more}{row}</{root}>"
    ).encode()


def s3_row(key: str) -> str:
    return (
        f'<Contents><Key>{key}</Key><LastModified>{ISO_DATE}</LastModified><ETag>"e"</ETag>'
        "<Size>1</Size></Contents>"
    )


S3_NEEDS = ("IsTruncated", "Key", "Size", "LastModified")
S3_LIST = Good(200, s3_page("ListBucketResult", s3_row("b")), needs=S3_NEEDS)
S3_FIRST = Good(
    200,
    s3_page(
        "ListBucketResult",
        s3_row("a"),
        "<NextContinuationToken>t</NextContinuationToken>",
        truncated="true",
    ),
    needs=(*S3_NEEDS, "NextContinuationToken"),
)
S3_HEAD = Good(
    headers={"Content-Length": str(SIZE), "Last-Modified": HTTP_DATE, "ETag": '"e"'},
    needs=("Content-Length", "Last-Modified"),
)
S3_EMPTY_HEAD = replace(S3_HEAD, headers={**S3_HEAD.headers, "Content-Length": "0"})
RANGE = {"Content-Range": f"bytes 0-{SIZE - 1}/{SIZE}"}
S3_UPLOADS = s3_page(
    "ListMultipartUploadsResult",
    f"<Upload><Key>k</Key><UploadId>u</UploadId><Initiated>{ISO_DATE}</Initiated></Upload>",
)
S3_PARTS = s3_page(
    "ListPartsResult", "<Part><PartNumber>1</PartNumber><Size>1</Size><ETag>e</ETag></Part>"
)


def s3_result(name: str, *needs: str) -> Good:
    fields = "".join(f"<{need}>e</{need}>" for need in needs)
    return Good(200, f"<{name}>{fields}</{name}>".encode(), needs=needs)


S3_TAGS = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
S3 = (
    verb("s3", "check", replace(S3_LIST, needs=S3_NEEDS)),
    verb("s3", "list", S3_FIRST, S3_LIST),
    verb("s3", "head", S3_HEAD),
    verb(
        "s3",
        "head with tags",
        S3_HEAD,
        Good(200, S3_TAGS, needs=("TagSet", "Key", "Value")),
        run=COMMON["head"],
        options=(("tags", "keep"),),
        fixed=(0,),
    ),
    verb("s3", "read", Good(206, BODY, RANGE, ("Content-Range",))),
    verb("s3", "read nothing", S3_EMPTY_HEAD),
    verb("s3", "put", Good(headers={"ETag": '"e"', "Date": HTTP_DATE}, needs=("ETag",))),
    verb("s3", "create", s3_result("InitiateMultipartUploadResult", "UploadId")),
    verb("s3", "put part", Good(headers={"ETag": '"e"'}, needs=("ETag",))),
    verb("s3", "copy part", s3_result("CopyPartResult", "ETag"), run=copy_part),
    verb(
        "s3",
        "complete",
        s3_result("CompleteMultipartUploadResult", "ETag"),
        replace(S3_HEAD, headers={**S3_HEAD.headers, "ETag": "e"}),
        run=complete("e"),
        fixed=(1,),
    ),
    verb("s3", "abort", Good(204)),
    verb(
        "s3",
        "list uploads",
        Good(200, S3_UPLOADS, needs=("IsTruncated", "Key", "UploadId", "Initiated")),
    ),
    verb("s3", "list parts", Good(200, S3_PARTS, needs=("IsTruncated", "PartNumber", "Size"))),
    verb("s3", "delete", Good(204)),
)


def gcs_object(name: str, **more: object) -> dict[str, object]:
    return {
        "kind": "storage#object",
        "name": name,
        "generation": "7",
        "size": str(SIZE),
        "crc32c": answers_crc(),
        "updated": ISO_DATE,
        "timeCreated": ISO_DATE,
        **more,
    }


def answers_crc(body: bytes = BODY) -> str:
    from skyplane_gateway.stores.checksums import crc32c_text

    return crc32c_text(crc32c(body))


def of_json(document: object, *needs: str) -> Good:
    return Good(200, json.dumps(document).encode(), needs=needs)


GCS_NEEDS = ("kind", "name", "generation", "size", "updated", "timeCreated")
MARKER = f".skyplane/uploads/{UPLOAD}.upload"
PART = f".skyplane/uploads/{UPLOAD}/00001"
ATTRIBUTES: dict[str, object] = {
    "content_type": None,
    "content_encoding": None,
    "content_language": None,
    "content_disposition": None,
    "cache_control": None,
    "metadata": {},
}
GCS_MARKER = of_json(
    gcs_object(MARKER, crc32c=answers_crc(json.dumps(ATTRIBUTES).encode())), *GCS_NEEDS
)


def gcs_page(*names: str, **more: object) -> Good:
    rows = [gcs_object(name, metadata={"skyplane-key": "k"}) for name in names]
    # A page may have no rows, and the last has no token.
    needs = ("kind", "name", "generation", "size") if names else ("kind",)
    return of_json({"kind": "storage#objects", "items": rows, **more}, *needs)


GCS_DONE = {"kind": "storage#rewriteResponse", "done": True, "resource": gcs_object(PART)}
GCS = (
    verb("gcs", "check", of_json({"kind": "storage#objects"}, "kind")),
    verb("gcs", "list", gcs_page("a", nextPageToken="t"), gcs_page("b")),
    verb("gcs", "head", of_json(gcs_object("k"), *GCS_NEEDS)),
    verb("gcs", "read", Good(206, BODY, RANGE, ("Content-Range",))),
    verb("gcs", "read nothing", of_json(gcs_object("k", size="0"), *GCS_NEEDS)),
    verb("gcs", "put", of_json(gcs_object("k"), *GCS_NEEDS)),
    # The size of a marker is compared, so only a part is written here.
    verb("gcs", "put part", of_json(gcs_object(PART), *GCS_NEEDS), GCS_MARKER),
    verb(
        "gcs",
        "copy part",
        of_json(GCS_DONE, "kind", "done", "resource", "name", "generation", "size"),
        GCS_MARKER,
        run=copy_part,
    ),
    verb(
        "gcs",
        "complete",
        GCS_MARKER,
        of_json(ATTRIBUTES, "content_type"),
        gcs_page(PART),
        of_json(gcs_object("k"), "name", "generation", "size", "updated"),
        Good(204),
        gcs_page(),
        run=complete("7"),
        fixed=(4, 5),
    ),
    verb("gcs", "abort", Good(204), gcs_page()),
    verb("gcs", "list uploads", gcs_page(MARKER)),
    verb("gcs", "list parts", GCS_MARKER, gcs_page(PART)),
    verb("gcs", "delete", Good(204)),
    verb(
        "gcs",
        "region",
        of_json(
            {"kind": "storage#bucket", "location": "EU", "locationType": "region"},
            "kind",
            "location",
            "locationType",
        ),
    ),
)


def azure_page(name: str, marker: str = "") -> Good:
    body = (
        '<?xml version="1.0" encoding="utf-8"?>'
        '<EnumerationResults ServiceEndpoint="http://here/" ContainerName="box"><Blobs><Blob>'
        f"<Name>{name}</Name><Properties><Last-Modified>{HTTP_DATE}</Last-Modified>"
        "<Etag>0x1</Etag><Content-Length>1</Content-Length></Properties></Blob></Blobs>"
        f"<NextMarker>{marker}</NextMarker></EnumerationResults>"
    ).encode()
    # The last page has a marker without text.
    needs = ("Name", "Properties", "Last-Modified", "Etag", "Content-Length")
    return Good(200, b"\xef\xbb\xbf" + body, needs=needs)


AZURE_HEADERS = {"Content-Length": str(SIZE), "Last-Modified": HTTP_DATE, "ETag": '"e"'}
AZURE_HEAD = Good(headers=AZURE_HEADERS, needs=tuple(AZURE_HEADERS))
WRITTEN = {"Last-Modified": HTTP_DATE, "ETag": '"e"'}
BLOCK = BlockId(UPLOAD, 1, CRC, 1).text
BLOCKS = (
    "<BlockList><UncommittedBlocks>"
    f"<Block><Name>{BLOCK}</Name><Size>{SIZE}</Size></Block></UncommittedBlocks></BlockList>"
)
AZURE_MARKER = of_json({"key": "k", "attributes": ATTRIBUTES}, "key", "attributes", "content_type")
AZURE_TAGS = b"<Tags><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tags>"
AZURE = (
    verb("azure", "check", replace(azure_page("a"), needs=("Blobs", "NextMarker"))),
    verb("azure", "list", azure_page("a", "m"), azure_page("b")),
    verb("azure", "head", AZURE_HEAD),
    verb(
        "azure",
        "head with tags",
        AZURE_HEAD,
        Good(200, AZURE_TAGS, needs=("TagSet", "Key")),
        run=COMMON["head"],
        options=(("tags", "keep"),),
        fixed=(0,),
    ),
    verb("azure", "read", Good(206, BODY, RANGE, ("Content-Range",))),
    verb(
        "azure",
        "read nothing",
        replace(
            AZURE_HEAD,
            headers={**AZURE_HEADERS, "Content-Length": "0"},
            needs=("Content-Length", "ETag"),
        ),
    ),
    verb("azure", "put", Good(201, headers=WRITTEN, needs=tuple(WRITTEN))),
    verb("azure", "create", Good(201, headers=WRITTEN)),
    verb("azure", "put part", Good(201)),
    verb(
        "azure",
        "complete",
        AZURE_MARKER,
        Good(201, headers=WRITTEN, needs=("ETag",)),
        Good(202),
        AZURE_HEAD,
        run=complete(BLOCK),
        fixed=(2, 3),
    ),
    verb("azure", "abort", Good(202)),
    verb("azure", "list uploads", azure_page(f".skyplane/uploads/k.{UPLOAD}")),
    verb(
        "azure",
        "list parts",
        AZURE_MARKER,
        Good(200, BLOCKS.encode(), needs=("Name", "Size")),
    ),
    verb("azure", "delete", Good(202)),
)
TABLE = (*S3, *GCS, *AZURE)


# ------------------------------------------------------------------ the shapes

HTML = b"<!DOCTYPE html><html><head><title>Log in</title></head><body>Log in<br></body></html>"
#: Bodies that are the answer to nothing here.
BODIES = {
    "empty": b"",
    "HTML": HTML,
    "XHTML": b'<html xmlns="http://www.w3.org/1999/xhtml"><body/></html>',
    "plain text": b"upstream request timeout",
    "another listing": b"<ListAllMyBucketsResult><Buckets/><Owner/></ListAllMyBucketsResult>",
    "another document": b"<Root><IsTruncated/><Blobs/></Root>",
    "an error without a code": b"<Error><Message>m</Message></Error>",
    "a JSON error": b'{"error": {"code": 500, "message": "m"}}',
    "an empty object": b"{}",
    "a list": b"[]",
    "a null": b"null",
    "a number": b"7",
    "deep XML": b"<ListBucketResult>" + b"<a>" * 30_000,
    "deep JSON": b"[" * 30_000,
    "not UTF-8": b"\xff\xfe\x00\x80",
    "entities": b'<!DOCTYPE a [<!ENTITY b "bbbb">]><ListBucketResult>&b;</ListBucketResult>',
}


def shapes(good: Good, kind: str) -> Iterator[tuple[str, Good]]:
    """What may come in place of a good answer, by name."""
    for name, body in BODIES.items():
        for status in {200, good.status} - {204, 206}:
            is_real = status == good.status and body == good.body and not good.needs
            # fake-gcs-server answers so to a deletion.
            if not is_real and not (kind == "gcs" and good.status == 204 and name == "a null"):
                yield f"{name} {status}", Good(status, body, {"Content-Type": "text/html"})
    if good.body and good.status == 200:
        yield "cut off", replace(good, body=good.body[: len(good.body) // 2])
        yield "twice", replace(good, body=good.body * 2)
        yield "too long", replace(good, body=good.body + b" " * LIMIT_BYTES)
    if good.status == 206:
        yield "longer than its range", replace(good, body=b" " + good.body)
    for need in good.needs:
        yield from ((f"{name} {need}", bad) for name, bad in without(good, need))


def without(good: Good, need: str) -> Iterator[tuple[str, Good]]:
    """The answer without a field, or with another value in it."""
    if need in good.headers:
        for name, text in (("no", ""), ("odd", "null"), ("far", FAR_TIME)):
            if name != "no" and need in ("ETag", "Date"):
                continue  # Any text is a version.
            yield name, replace(good, headers={**good.headers, need: text})
    elif good.body.startswith(b"{"):
        value: object
        for value in (..., None, 7.5, [], {"a": 1}, "", True, LONG):
            if need == "content_type" and value in (None, ""):
                continue
            if value is LONG and need not in ("size", "generation", "updated"):
                continue  # Any text is a name.
            if need == "done" and value is True:
                continue
            document = json.loads(good.body)
            changed = _changed(document, need, value)
            yield f"{value}", replace(good, body=json.dumps(changed).encode())
    else:
        pattern = rb"<%b>.*?</%b>" % (need.encode(), need.encode())
        assert re.search(pattern, good.body), need
        yield "no", replace(good, body=re.sub(pattern, b"", good.body))
        if need in ("Size", "Content-Length", "PartNumber", "IsTruncated", "Initiated") or (
            need.startswith("Last")
        ):
            for odd in ("", "null", "-7", "7.5", "True", LONG, FAR_TIME):
                tag = f"<{need}>{odd}</{need}>".encode()
                yield f"{odd!r}", replace(good, body=re.sub(pattern, tag, good.body))


def _changed(document: Any, need: str, value: Any) -> Any:
    """The document with another value at each place of that name; `...` for none."""
    if isinstance(document, list):
        return [_changed(entry, need, value) for entry in document]
    if not isinstance(document, dict):
        return document
    found = {name: _changed(entry, need, value) for name, entry in document.items()}
    if need in found:
        found[need] = value
        if value is ...:
            del found[need]
    return found


# ------------------------------------------------------------------ the tests


@pytest.fixture
def play(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., object]]:
    """Runs a verb against these answers; the last one is repeated."""
    monkeypatch.setattr(response_validation, "MAX_BODY_BYTES", LIMIT_BYTES)
    opened: dict[str, Any] = {}

    def run(row: Verb, found: list[Good], *, is_async: bool) -> object:
        if row.id not in opened:
            spec = StoreSpec(row.kind, BUCKETS[row.kind], scripted.url, "us-east-1", row.options)
            opened[row.id] = open_without_retries(spec, CREDENTIALS[row.kind])
        store = opened[row.id]
        scripted.replies[:] = [
            Reply(each.status, each.body, each.headers, declared=None)
            for each in found + found[-1:] * 8
        ]
        return row.run(AsyncFirst(store) if is_async else store)

    yield run
    for store in opened.values():
        store.close()


def cases() -> Iterator[Any]:
    for row in TABLE:
        yield pytest.param(row, False, id=row.id)
        if row.name in ASYNC:
            yield pytest.param(row, True, id=f"{row.id} async")


@pytest.mark.parametrize(("row", "is_async"), list(cases()))
def test_a_shape_that_is_no_answer_is_an_error(
    play: Callable[..., object], row: Verb, is_async: bool
) -> None:
    play(row, list(row.answers), is_async=is_async)
    wrong = []
    for at, good in enumerate(row.answers):
        if at in row.fixed:
            continue
        for name, bad in shapes(good, row.kind):
            if is_async and name in ASYNC_TAKES:
                continue
            try:
                found = play(row, [*row.answers[:at], bad], is_async=is_async)
            except StoreError as error:
                said = error.message
                is_true = "the answer " in said or "the listing" in said or "no ETag" in said
                if not is_true or "\n" in said or ": 599;" in said or ": 500" in said:
                    wrong.append((at, name, said))
            except Exception as error:  # noqa: BLE001
                wrong.append((at, name, repr(error)))
            else:
                wrong.append((at, name, f"taken for {found!r}"))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("row", [row for row in TABLE if row.name in ("check", "head", "delete")])
def test_a_date_that_is_no_time_changes_no_answer(play: Callable[..., object], row: Verb) -> None:
    for date in (FAR_TIME, "Tue, 02 Jan 2024 03:04:05 +99999999999999999999", "null"):
        dated = [replace(each, headers={**each.headers, "Date": date}) for each in row.answers]
        assert play(row, dated, is_async=False) == play(row, list(row.answers), is_async=False)


@pytest.mark.parametrize("name", ["crc32c", "md5Hash"])
@pytest.mark.parametrize("row", [row for row in GCS if row.name in ("head", "complete")])
def test_a_checksum_of_another_type_is_no_answer(
    play: Callable[..., object], row: Verb, name: str
) -> None:
    for value in (7, 7.5, True, ["x"], {"a": 1}):
        bad = [
            replace(each, body=json.dumps(_with(json.loads(each.body), name, value)).encode())
            if b'"crc32c"' in each.body
            else each
            for each in row.answers
        ]
        with pytest.raises(StoreError, match="the answer"):
            play(row, bad, is_async=False)


def _with(document: Any, name: str, value: object) -> Any:
    """The document with that value in each object of the store."""
    if isinstance(document, list):
        return [_with(entry, name, value) for entry in document]
    if not isinstance(document, dict):
        return document
    found = {key: _with(entry, name, value) for key, entry in document.items()}
    return {**found, name: value} if "crc32c" in found else found


def test_the_table_has_every_verb_of_every_store() -> None:
    verbs = {"check", "list", "head", "read", "put", "create", "put part", "complete"}
    verbs |= {"abort", "list uploads", "list parts", "delete"}
    for kind in BUCKETS:
        missing = verbs - {row.name for row in TABLE if row.kind == kind}
        assert missing <= ({"create"} if kind == "gcs" else set())


@pytest.mark.long
def test_limits_of_documents() -> None:
    for body in (b"<a/><a/>", b"<a>\0</a>", b"<?xml version='1.0' encoding='x'?><a>"):
        with pytest.raises(NoAnswer, match="is no a"):
            read_xml(body, "a")
    assert len(read_xml(b"<a>" + b"<b>text</b>" * 30_000 + b"</a>", "a")) == 30_000
    long_tag = b"<a " + b" ".join(b'b%d=""' % number for number in range(2_000_000)) + b"/>"
    for body in (long_tag, b"<a>" + b"<b/>" * 2_000_000 + b"</a>"):
        with pytest.raises(NoAnswer, match="is no a"):
            read_xml(body, "a")
    with pytest.raises(NoAnswer, match="more values"):
        read_json(b'{"a": [' + b"{}," * 4_000_000 + b"{}]}")
