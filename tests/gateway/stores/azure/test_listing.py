"""Listings that the emulator does not give: directories, other orders, broken pages."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import pytest
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.errors import InvalidKey, StoreError
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries


def page(*names: str, marker: str = "", properties: str = "") -> bytes:
    rows = "".join(
        f"<Blob><Name>{escape(name)}</Name><Properties>"
        "<Last-Modified>Mon, 23 Nov 2026 10:00:00 GMT</Last-Modified><Etag>0x1</Etag>"
        f"<Content-Length>3</Content-Length>{properties}</Properties></Blob>"
        for name in names
    )
    return (
        f"<EnumerationResults><Blobs>{rows}</Blobs><NextMarker>{escape(marker)}</NextMarker>"
        "</EnumerationResults>"
    ).encode()


def opened(scripted: ScriptedServer, *bodies: bytes) -> ObjectStore:
    scripted.replies += [Reply(200, body) for body in bodies]
    spec = StoreSpec("azure", "acct/box", scripted.url)
    return open_without_retries(spec, Credentials({"account_key": "a2V5"}))


def test_etags_get_the_quotes_of_other_answers(scripted: ScriptedServer) -> None:
    (row,) = opened(
        scripted,
        page("a"),
    ).list("")
    assert (row.etag, row.size_bytes) == ('"0x1"', 3)


def test_a_listing_is_of_current_blobs(scripted: ScriptedServer) -> None:
    """The service lists deleted blobs, snapshots and versions only if `include` names them."""
    assert (
        len(
            list(
                opened(
                    scripted,
                    page("a"),
                ).list("a")
            )
        )
        == 1
    )
    query = parse_qs(urlsplit(scripted.requests[0].path).query)
    assert set(query) == {"restype", "comp", "maxresults", "prefix", "include"}
    assert query["include"] == ["metadata"]


def test_pages_follow_their_markers(scripted: ScriptedServer) -> None:
    store = opened(
        scripted,
        page("a", marker="m&1"),
        page("b"),
    )
    assert [row.key for row in store.list("")] == ["a", "b"]
    assert "marker=m%261" in scripted.requests[1].path


def test_a_listing_begins_in_the_middle(scripted: ScriptedServer) -> None:
    store = opened(
        scripted,
        page("a/b", "a/c"),
    )
    assert [row.key for row in store.list("a/", start_after="a/b")] == ["a/c"]
    assert "startFrom=a%2Fb" in scripted.requests[0].path


def test_an_older_service_lists_from_the_beginning(scripted: ScriptedServer) -> None:
    scripted.replies.append(Reply(400, headers={"x-ms-error-code": "InvalidHeaderValue"}))
    store = opened(
        scripted,
        page("a", "b"),
    )
    assert [row.key for row in store.list("", start_after="a")] == ["b"]
    assert "startFrom" not in scripted.requests[1].path


@pytest.mark.parametrize(
    "bodies",
    [
        [page("b", "a")],
        [page("a", "a")],
        [page("a", marker="m"), page("b", marker="m")],
        [page("b", marker="m"), page("a")],
        [b"<html>"],
        [b"<EnumerationResults><Blobs><Blob/></Blobs></EnumerationResults>"],
    ],
)
def test_a_listing_that_may_be_incomplete_is_an_error(
    scripted: ScriptedServer, bodies: list[bytes]
) -> None:
    store = opened(
        scripted,
        *bodies,
    )
    with pytest.raises(StoreError, match=r"relied on|order of keys|the answer (is no|has)"):
        list(store.list(""))


def test_keys_in_the_order_of_utf16_are_sorted(scripted: ScriptedServer) -> None:
    utf16 = ["a", "p/\U0001f600x", "p/\U0001f600y", "p/\uff5a", "p/\uff5az", "q"]
    store = opened(
        scripted,
        page(*utf16[:2], marker="m"),
        page(*utf16[2:]),
    )
    assert [row.key for row in store.list("")] == sorted(utf16, key=str.encode)


@pytest.mark.parametrize(
    ("properties", "lost"),
    [
        ("<AccessTier>Cool</AccessTier>", ("storage-class",)),
        ("<AccessTier>Cool</AccessTier><AccessTierInferred>true</AccessTierInferred>", ()),
        ("<AccessTier>Hot</AccessTier>", ()),
        ("<TagCount>2</TagCount>", ("tags",)),
        ("<BlobType>BlockBlob</BlobType>", ()),
        ("<BlobType>PageBlob</BlobType>", ("blob-type",)),
        ("<BlobType>AppendBlob</BlobType>", ("blob-type",)),
        ("<Expiry-Time>Tue, 02 Jan 2029 03:04:05 GMT</Expiry-Time>", ("expires",)),
        ("<LegalHold>true</LegalHold>", ("hold",)),
        ("<ImmutabilityPolicyUntilDate>Tue</ImmutabilityPolicyUntilDate>", ("retention",)),
    ],
)
def test_metadata_that_a_copy_will_not_have(
    scripted: ScriptedServer, properties: str, lost: tuple[str, ...]
) -> None:
    (row,) = opened(
        scripted,
        page("a", properties=properties),
    ).list("")
    assert row.not_carried == lost
    # An inferred tier is billed like a chosen one.
    assert row.storage_class == ("Cool" if "Cool" in properties else None)


def test_a_blob_that_is_being_rehydrated(scripted: ScriptedServer) -> None:
    """The emulator has no such state."""
    properties = (
        "<AccessTier>Archive</AccessTier><ArchiveStatus>rehydrate-pending-to-cool</ArchiveStatus>"
    )
    (row,) = opened(
        scripted,
        page("a", properties=properties),
    ).list("")
    assert "in progress" in row.archived


@pytest.mark.parametrize(
    ("size", "name", "text", "is_folder"),
    [
        (0, "hdi_isfolder", "true", True),
        (0, "Hdi_isfolder", "True", True),
        (3, "hdi_isfolder", "true", False),
        (0, "hdi_isfolder", "false", False),
        (0, "other", "true", False),
    ],
)
def test_an_empty_blob_may_stand_for_a_folder(
    scripted: ScriptedServer, size: int, name: str, text: str, is_folder: bool
) -> None:
    body = page("a").replace(b"th>3<", b"th>%d<" % size)
    mark = f"</Properties><Metadata><{name}>{text}</{name}></Metadata>".encode()
    (row,) = opened(
        scripted,
        body.replace(b"</Properties>", mark),
    ).list("")
    assert row.is_folder == is_folder
    assert type(row).from_dict(row.to_dict()) == row


def folder(prefix: str, files: list[str], folders: list[str]) -> bytes:
    """A page of one folder of an account with a hierarchical namespace."""
    kind = "<ResourceType>file</ResourceType>"
    body = page(*(prefix + name for name in files), properties=kind).decode()
    rows = "".join(f"<BlobPrefix><Name>{prefix}{name}/</Name></BlobPrefix>" for name in folders)
    return body.replace("</Blobs>", rows + "</Blobs>").encode()


def test_a_hierarchical_namespace_is_listed_folder_by_folder(scripted: ScriptedServer) -> None:
    directory = page("a", properties="<ResourceType>directory</ResourceType>")
    store = opened(
        scripted,
        directory,
        folder("", ["a-b", "z"], ["a", "m"]),
        folder("a/", ["x"], []),
        folder("m/", ["y"], []),
    )
    assert [row.key for row in store.list("")] == ["a-b", "a/x", "m/y", "z"]
    assert "delimiter=%2F" in scripted.requests[1].path


def test_folders_before_the_start_are_left_out(scripted: ScriptedServer) -> None:
    directory = page("m", properties="<ResourceType>directory</ResourceType>")
    store = opened(
        scripted,
        directory,
        folder("", ["a-b", "z"], ["a", "m"]),
        folder("m/", ["x", "y"], []),
    )
    assert [row.key for row in store.list("", start_after="m/x")] == ["m/y", "z"]
    assert len(scripted.requests) == 3


def test_a_hierarchical_namespace_takes_no_empty_segments(scripted: ScriptedServer) -> None:
    store = opened(
        scripted,
        folder("", ["a"], []),
        folder("", ["a"], []),
    )
    with pytest.raises(InvalidKey, match="hierarchical"):
        store.put("a//b", b"x")
    with pytest.raises(InvalidKey, match="hierarchical"):
        store.create_upload("/a")


def test_the_kind_of_account_is_looked_up_once(scripted: ScriptedServer) -> None:
    store = opened(
        scripted,
        page("a"),
    )
    headers = {"ETag": '"1"', "Last-Modified": "Mon, 23 Nov 2026 10:00:00 GMT"}
    scripted.replies += [Reply(201, headers=headers)] * 3
    for key in ("a//b", "/a", "a"):
        store.put(key, b"x")
    assert [request.method for request in scripted.requests] == ["GET", "PUT", "PUT", "PUT"]
