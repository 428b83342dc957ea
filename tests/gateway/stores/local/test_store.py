"""The file store: content types, names, errors, reads, uploads."""

from __future__ import annotations

import errno
import mimetypes
import os
from pathlib import Path

import pytest

from skyplane_gateway.common import errors
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.mtime import with_mtime
from skyplane_gateway.common.objects import IF_ABSENT, UNCONDITIONAL, ObjectAttributes, PartInfo
from skyplane_gateway.stores import (
    GUESSED_TYPE,
    KEPT_TIME,
    ObjectStore,
    StoreSpec,
    check_destination_key,
)
from skyplane_gateway.stores.content_types import guessed_type
from skyplane_gateway.stores.local.error_mapping import translate
from skyplane_gateway.stores.registry import open_without_retries


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def part(store: ObjectStore, key: str, upload_id: str, body: bytes, offset: int = 0) -> PartInfo:
    return store.put_part(
        key, upload_id, 1 + offset // 10, body, offset=offset, crc32c=crc32c(body)
    )


def test_the_content_type_is_guessed_from_the_name(root: Path) -> None:
    """As in `aws s3 cp`, a compressed file has the type of its content and no encoding."""
    (root / "sub").mkdir()
    for name in ("a.csv", "a.csv.gz", "a.html", "data:text,x", "none", "sub/a.unheard-of"):
        (root / name).write_bytes(b"1")
    source = open_without_retries(StoreSpec("file", str(root), options=(GUESSED_TYPE,)))
    found = {}
    for info in source.list(""):
        attributes = source.head(info.key).attributes
        with source.read(info.key, offset=0, length=1, if_match=info.etag) as reader:
            assert reader.attributes == attributes
        found[info.key] = attributes
    assert found == {
        "a.csv": ObjectAttributes(content_type="text/csv"),
        "a.csv.gz": ObjectAttributes(content_type="text/csv"),
        "a.html": ObjectAttributes(content_type="text/html"),
        "data:text,x": ObjectAttributes(),
        "none": ObjectAttributes(),
        "sub/a.unheard-of": ObjectAttributes(),
    }


def test_no_content_type_is_guessed_without_the_option(store: ObjectStore, root: Path) -> None:
    (root / "a.csv").write_bytes(b"1")
    assert store.head("a.csv").attributes is None
    with store.read("a.csv", offset=0, length=1, if_match=None) as reader:
        assert reader.attributes is None


def test_the_types_of_the_machine_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise gateways on different machines would choose different types."""
    mimetypes.add_type("text/x-of-this-machine", ".unheard-of")
    mimetypes.add_type("text/x-of-this-machine", ".csv")
    monkeypatch.setattr(mimetypes, "inited", False)
    assert (guessed_type("a.unheard-of"), guessed_type("a.csv")) == (None, "text/csv")
    mimetypes.init()


def test_a_file_store_has_no_other_option(root: Path) -> None:
    with pytest.raises(errors.ConfigurationInvalid, match="given content_type=text/csv"):
        open_without_retries(StoreSpec("file", str(root), options=(("content_type", "text/csv"),)))


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("a/../b", "another directory"),
        ("./a", "another directory"),
        ("a//b", "empty segment"),
        ("/a", "empty segment"),
        ("a\0b", "NUL"),
        ("a/" + "n" * 256, "256 bytes"),
        ("a/" + "\u00e9" * 128, "256 bytes"),
        ("a/.skyplane-upload-x", "unfinished"),
    ],
)
def test_keys_that_are_no_path_are_refused_with_the_reason(
    store: ObjectStore, key: str, why: str
) -> None:
    with pytest.raises(errors.InvalidKey, match=why):
        store.put(key, b"")
    with pytest.raises(errors.InvalidKey, match=why):
        check_destination_key("file", key, 0)


def test_keys_are_checked_without_a_store() -> None:
    check_destination_key("file", "x/", 0)
    with pytest.raises(errors.InvalidKey, match="directory"):
        check_destination_key("file", "x/", 1)
    check_destination_key("s3", "a/../b", 1)
    with pytest.raises(errors.InvalidKey, match="1025 bytes"):
        check_destination_key("s3", "n" * 1025, 1)


def test_a_file_in_place_of_a_directory(store: ObjectStore) -> None:
    store.put("x", b"file")
    with pytest.raises(errors.InvalidKey):
        store.put("x/below", b"")
    with pytest.raises(errors.InvalidKey):
        store.create_upload("x/below/more")
    with pytest.raises(errors.NotFound):
        store.head("x/below")
    with pytest.raises(errors.NotFound):
        store.read("x/below", offset=0, length=0, if_match=None)


def test_a_directory_in_place_of_a_file(store: ObjectStore, root: Path) -> None:
    store.put("d/k", b"x")
    for precondition in (UNCONDITIONAL, IF_ABSENT):
        with pytest.raises(errors.InvalidKey, match="directory"):
            store.put("d", b"file", precondition=precondition)
    with pytest.raises(errors.NotFound):
        store.head("d")
    store.delete("d")
    store.delete("d/")
    assert [path.name for path in (root / "d").iterdir()] == ["k"]


@pytest.mark.parametrize(
    ("number", "kind", "is_permanent"),
    [
        (errno.ENOENT, errors.NotFound, True),
        (errno.EACCES, errors.PermissionDenied, True),
        (errno.EROFS, errors.PermissionDenied, True),
        (errno.ENOSPC, errors.StoreError, False),
        (errno.EDQUOT, errors.StoreError, False),
        (errno.ENAMETOOLONG, errors.InvalidKey, True),
        (errno.EIO, errors.StoreUnavailable, False),
        (errno.EMFILE, errors.StoreUnavailable, False),
        (errno.ECHILD, errors.StoreError, False),
    ],
)
def test_an_errno_has_one_error(
    number: int, kind: type[errors.SkyplaneError], is_permanent: bool
) -> None:
    found = translate(OSError(number, os.strerror(number)), "writing /x")
    assert (type(found), found.is_permanent) == (kind, is_permanent)
    assert found.message.startswith("writing /x: ")


def test_a_full_disk_leaves_nothing_behind(
    store: ObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(errors.StoreError, match="space") as caught:
        store.put("k", b"body")
    assert not caught.value.is_permanent, "space may be freed"
    assert list(root.iterdir()) == []


def test_a_file_changed_while_it_is_read(store: ObjectStore, root: Path) -> None:
    info = store.put("k", b"0123456789")
    buffer = memoryview(bytearray(5))
    with store.read("k", offset=0, length=10, if_match=info.etag) as reader:
        assert reader.readinto(buffer) == 5
        os.utime(root / "k", ns=(1, 1))
        with pytest.raises(errors.PreconditionFailed):
            reader.readinto(buffer)


def test_a_file_cut_short_while_it_is_read(store: ObjectStore, root: Path) -> None:
    store.put("k", b"0123456789")
    with store.read("k", offset=0, length=10, if_match=None) as reader:
        os.truncate(root / "k", 0)
        with pytest.raises(errors.PreconditionFailed):
            reader.readinto(memoryview(bytearray(10)))


def test_a_part_with_an_incomplete_log_line_is_not_stored(store: ObjectStore, root: Path) -> None:
    upload_id = store.create_upload("k")
    first = part(store, "k", upload_id, b"0123456789")
    (log,) = root.glob("*.parts")
    with log.open("a") as file:
        file.write("\n[2, 10, 1")
    third = part(store, "k", upload_id, b"x", 20)
    assert store.list_parts("k", upload_id) == (first, third)
    second = part(store, "k", upload_id, b"0123456789", 10)
    store.complete_upload("k", upload_id, [first, second, third], size_bytes=21)
    assert (root / "k").read_bytes() == b"01234567890123456789x"
    assert [path.name for path in root.iterdir()] == ["k"]


def test_a_gap_between_parts_is_refused(store: ObjectStore) -> None:
    upload_id = store.create_upload("k")
    first = part(store, "k", upload_id, b"0123456789")
    third = part(store, "k", upload_id, b"x", 20)
    with pytest.raises(errors.StoreError, match="part 3"):
        store.complete_upload("k", upload_id, [first, third], size_bytes=21)


def test_a_crash_between_link_and_unlink_is_a_completion(store: ObjectStore, root: Path) -> None:
    upload_id = store.create_upload("k")
    only = part(store, "k", upload_id, b"body")
    (draft,) = (path for path in root.iterdir() if not path.name.endswith(".parts"))
    os.link(draft, root / "k")
    done = store.complete_upload("k", upload_id, [only], precondition=IF_ABSENT, size_bytes=4)
    assert done.etag == store.head("k").etag
    assert [path.name for path in root.iterdir()] == ["k"]


def test_new_files_have_the_ordinary_mode(store: ObjectStore, root: Path) -> None:
    mask = os.umask(0o027)
    try:
        store.put("put", b"x")
        upload_id = store.create_upload("multi")
        only = part(store, "multi", upload_id, b"x")
        store.complete_upload("multi", upload_id, [only], size_bytes=1)
    finally:
        os.umask(mask)
    assert {(root / name).stat().st_mode & 0o777 for name in ("put", "multi")} == {0o640}


def test_a_time_in_the_metadata_becomes_that_of_the_file(root: Path) -> None:
    store = open_without_retries(StoreSpec("file", str(root), options=(KEPT_TIME,)))
    mtime_ns = 1_600_000_000_123_456_789
    attributes = with_mtime(ObjectAttributes(), mtime_ns)
    put = store.put("put", b"x", attributes=attributes)
    upload_id = store.create_upload("multi", attributes)
    stored = part(store, "multi", upload_id, b"x")
    made = store.complete_upload("multi", upload_id, [stored], size_bytes=1)
    for written in (put, made):
        found = store.head(written.key)
        assert (root / written.key).stat().st_mtime_ns == mtime_ns
        assert (found.etag, found.attributes) == (written.etag, attributes)
        assert found.last_modified == pytest.approx(mtime_ns / 1e9)
        # A resume asks when the file was written.
        assert found.written_unix_s > 1_700_000_000
    plain = store.put("plain", b"x")
    assert plain.last_modified > 1_700_000_000


def folders_synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of all fsync calls from now on."""
    seen: list[str] = []
    inner = os.fsync

    def record(file: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{file}"))
        inner(file)

    monkeypatch.setattr(os, "fsync", record)
    return seen


@pytest.mark.parametrize("how", ["put", "upload", "marker"])
def test_new_folders_are_on_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Each new name is in its folder, and that folder is synced; also above the root."""
    store = open_without_retries(StoreSpec("file", str(root / "new" / "top")))
    (root / "new").mkdir()
    seen = folders_synced(monkeypatch)
    if how == "put":
        store.put("a/b/k", b"x")
    elif how == "marker":
        store.put("a/b/k/", b"")
    else:
        store.create_upload("a/b/k")
    top = root / "new" / "top"
    made = [root / "new", top, top / "a", *([top / "a" / "b"] if how == "marker" else [])]
    assert [path for path in map(Path, seen) if path in made] == made
    seen.clear()
    store.put("a/b/other", b"x")
    assert [path for path in map(Path, seen) if path in made[:3]] == []
