"""What only a file store can get wrong."""

from __future__ import annotations

import errno
import mimetypes
import os
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway import errors
from skyplane_gateway.checksum import crc32c
from skyplane_gateway.objects import IF_ABSENT, UNCONDITIONAL, ObjectAttributes, PartInfo
from skyplane_gateway.selection import SelectionRule
from skyplane_gateway.stores import GUESSED_TYPE, ObjectStore, StoreSpec, check_destination_key
from skyplane_gateway.stores.content_types import guessed_type
from skyplane_gateway.stores.local.errors import translate
from skyplane_gateway.stores.registry import open_without_retries


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> ObjectStore:
    return open_without_retries(StoreSpec("file", str(root)))


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def part(store: ObjectStore, key: str, upload_id: str, body: bytes, offset: int = 0) -> PartInfo:
    return store.put_part(
        key, upload_id, 1 + offset // 10, body, offset=offset, crc32c=crc32c(body)
    )


# ------------------------------------------------------------------ content types


def test_a_source_has_the_content_type_of_its_names(root: Path) -> None:
    """As `aws s3 cp`: a compressed file has the type of its content, and no encoding."""
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


def test_without_the_option_nothing_is_guessed(store: ObjectStore, root: Path) -> None:
    (root / "a.csv").write_bytes(b"1")
    assert store.head("a.csv").attributes is None
    with store.read("a.csv", offset=0, length=1, if_match=None) as reader:
        assert reader.attributes is None


def test_what_a_machine_knows_of_types_changes_no_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways on different machines would give one name two types."""
    mimetypes.add_type("text/x-of-this-machine", ".unheard-of")
    mimetypes.add_type("text/x-of-this-machine", ".csv")
    monkeypatch.setattr(mimetypes, "inited", False)
    assert (guessed_type("a.unheard-of"), guessed_type("a.csv")) == (None, "text/csv")
    mimetypes.init()


def test_a_file_store_has_no_other_option(root: Path) -> None:
    with pytest.raises(errors.ConfigurationInvalid, match="given content_type=text/csv"):
        open_without_retries(StoreSpec("file", str(root), options=(("content_type", "text/csv"),)))


# ------------------------------------------------------------------ listing


def test_links_are_followed_and_what_leads_nowhere_is_left_out(
    store: ObjectStore, root: Path
) -> None:
    (root / "real").mkdir()
    (root / "real" / "file").write_bytes(b"body")
    (root / "alias").symlink_to(root / "real" / "file")
    (root / "real-2").symlink_to(root / "real")
    (root / "nowhere").symlink_to(root / "none")
    os.mkfifo(root / "pipe")
    assert keys(store) == ["alias", "real-2/file", "real/file"]
    assert store.head("alias").size_bytes == 4


def test_links_in_a_circle_are_left_out_with_a_warning(
    store: ObjectStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole listing failed."""
    (root / "file").write_bytes(b"")
    (root / "itself").symlink_to(root / "itself")
    (root / "there").symlink_to(root / "back")
    (root / "back").symlink_to(root / "there")
    assert keys(store) == ["file"]
    for name in ("itself", "there", "back"):
        assert f"circular link: {root / name}" in caplog.text


def test_what_is_written_through_a_linked_folder_is_listed(
    store: ObjectStore, root: Path, tmp_path: Path
) -> None:
    """It was not, so that the next run took it for somebody else's."""
    (tmp_path / "disk").mkdir()
    (root / "sub").symlink_to(tmp_path / "disk")
    written = store.put("sub/a", b"1")
    upload_id = store.create_upload("sub/b/c")
    assert [row.etag for row in store.list("")] == [written.etag]
    assert keys(store, "sub/") == keys(store, "sub/a") == ["sub/a"]
    assert [row.upload_id for row in store.list_uploads("")] == [upload_id]
    (root / "sub-").write_bytes(b"")
    assert keys(store) == ["sub-", "sub/a"]
    assert [row.key for row in store.list("", start_after="sub-")] == ["sub/a"]


def test_links_that_lead_back_do_not_go_round_for_ever(
    store: ObjectStore, root: Path, tmp_path: Path
) -> None:
    (root / "a").mkdir()
    (root / "a" / "file").write_bytes(b"")
    (root / "a" / "self").symlink_to(root / "a")
    (root / "a" / "root").symlink_to(root)
    (root / "a" / "above").symlink_to(tmp_path)
    (tmp_path / "disk" / "deep").mkdir(parents=True)
    (tmp_path / "disk" / "deep" / "back").symlink_to(tmp_path / "disk")
    (root / "disk").symlink_to(tmp_path / "disk" / "deep")
    (root / "disk" / "file").write_bytes(b"")
    upload_id = store.create_upload("a/upload")
    assert keys(store) == ["a/file", "disk/back/deep/file", "disk/file"]
    assert [row.upload_id for row in store.list_uploads("")] == [upload_id]


def test_unfinished_files_and_empty_directories_are_not_objects(
    store: ObjectStore, root: Path
) -> None:
    store.create_upload("a/k")
    store.put("empty/", b"")
    (root / ".skyplane").mkdir()
    (root / ".skyplane" / "journal").write_bytes(b"")
    assert keys(store) == [".skyplane/journal"]


def test_a_name_that_is_not_utf8_stops_the_listing(store: ObjectStore, root: Path) -> None:
    (root / os.fsdecode(b"bad-\xff")).write_bytes(b"")
    (root / "good").write_bytes(b"")
    with pytest.raises(errors.StoreError, match="not UTF-8"):
        keys(store)
    assert keys(store, "good") == ["good"], "it is not asked for"


@pytest.mark.parametrize(
    ("rule", "is_listed"),
    [
        ({"exclude": ("bad*",)}, True),
        ({"exclude": ("*\udcff*",)}, True),
        ({"include": ("good",)}, True),
        ({"exclude": ("bad", "other*")}, False),
        ({}, False),
    ],
)
def test_what_cannot_be_named_can_be_excluded(
    store: ObjectStore,
    root: Path,
    caplog: pytest.LogCaptureFixture,
    rule: dict[str, tuple[str, ...]],
    is_listed: bool,
) -> None:
    (root / "in").mkdir()
    (root / "in" / os.fsdecode(b"bad-\xff")).write_bytes(b"")
    (root / "in" / "good").write_bytes(b"")
    wants = SelectionRule("in", "", **rule).wants  # type: ignore[arg-type]
    if not is_listed:
        with pytest.raises(errors.StoreError, match="not UTF-8"):
            list(store.list("in/", wants=wants))
        return
    assert [info.key for info in store.list("in/", wants=wants)] == ["in/good"]
    assert "left out by the filters" in caplog.text
    caplog.text.encode()


@pytest.mark.parametrize(
    ("rule", "is_listed"),
    [
        ({"exclude": ("shut/*",)}, True),
        ({"exclude": ("shut*",)}, True),
        # They may leave something of it that is wanted.
        ({"exclude": ("shut/*.csv",)}, False),
        ({"include": ("good",)}, False),
        ({}, False),
    ],
)
def test_a_folder_that_nobody_may_read_can_be_excluded(
    store: ObjectStore,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: dict[str, tuple[str, ...]],
    is_listed: bool,
) -> None:
    """Tests may run as root, who reads everything."""
    scandir = os.scandir

    def guarded(folder: Path) -> Any:
        if Path(folder).name == "shut":
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    (root / "in" / "shut").mkdir(parents=True)
    (root / "in" / "good").write_bytes(b"")
    wants = SelectionRule("in", "", **rule).wants  # type: ignore[arg-type]
    if not is_listed:
        with pytest.raises(errors.PermissionDenied, match="shut"):
            list(store.list("in/", wants=wants))
        return
    assert [info.key for info in store.list("in/", wants=wants)] == ["in/good"]


def test_a_single_file_is_listed_by_its_exact_key(store: ObjectStore, root: Path) -> None:
    (root / "file").write_bytes(b"x")
    assert keys(store, "file") == ["file"]
    assert keys(store, "file/") == []
    assert keys(store, "file/below") == []


@pytest.mark.parametrize("prefix", ["../", "a/../", "./", "/", "a//"])
def test_no_prefix_leads_out_of_the_root(store: ObjectStore, root: Path, prefix: str) -> None:
    (root.parent / "secret").write_bytes(b"x")
    (root / "a").mkdir()
    assert keys(store, prefix) == []


def test_the_whole_machine_may_be_the_bucket(root: Path) -> None:
    store = open_without_retries(StoreSpec("file", "/"))
    key = str(root).lstrip("/") + "/k"
    store.put(key, b"x")
    assert keys(store, key) == [key]
    assert (root / "k").read_bytes() == b"x"


# ------------------------------------------------------------------ names


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
def test_keys_that_are_no_path_say_why(store: ObjectStore, key: str, why: str) -> None:
    with pytest.raises(errors.InvalidKey, match=why):
        store.put(key, b"")
    with pytest.raises(errors.InvalidKey, match=why):
        check_destination_key("file", key, 0)


def test_what_a_destination_can_hold_is_known_without_a_store() -> None:
    check_destination_key("file", "x/", 0)
    with pytest.raises(errors.InvalidKey, match="directory"):
        check_destination_key("file", "x/", 1)
    check_destination_key("s3", "a/../b", 1)
    with pytest.raises(errors.InvalidKey, match="1025 bytes"):
        check_destination_key("s3", "n" * 1025, 1)


def test_a_file_in_the_way_of_a_directory(store: ObjectStore) -> None:
    store.put("x", b"file")
    with pytest.raises(errors.InvalidKey):
        store.put("x/below", b"")
    with pytest.raises(errors.InvalidKey):
        store.create_upload("x/below/more")
    with pytest.raises(errors.NotFound):
        store.head("x/below")
    with pytest.raises(errors.NotFound):
        store.read("x/below", offset=0, length=0, if_match=None)


def test_a_directory_in_the_way_of_a_file(store: ObjectStore, root: Path) -> None:
    store.put("d/k", b"x")
    for precondition in (UNCONDITIONAL, IF_ABSENT):
        with pytest.raises(errors.InvalidKey, match="directory"):
            store.put("d", b"file", precondition=precondition)
    with pytest.raises(errors.NotFound):
        store.head("d")
    store.delete("d")
    store.delete("d/")
    assert [path.name for path in (root / "d").iterdir()] == ["k"]


# ------------------------------------------------------------------ errors


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
def test_errnos_become_our_errors(
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
    assert not caught.value.is_permanent, "somebody may free some space"
    assert list(root.iterdir()) == []


# ------------------------------------------------------------------ reading


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


# ------------------------------------------------------------------ uploads


def test_a_part_whose_record_a_crash_cut_short_is_not_there(store: ObjectStore, root: Path) -> None:
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


def test_a_crash_before_the_log_was_removed_is_a_completion(store: ObjectStore, root: Path) -> None:
    upload_id = store.create_upload("k")
    only = part(store, "k", upload_id, b"body")
    (log,) = root.glob("*.parts")
    kept = log.read_bytes()
    store.complete_upload("k", upload_id, [only], size_bytes=4)
    log.write_bytes(kept)
    store.complete_upload("k", upload_id, [only], precondition=IF_ABSENT, size_bytes=4)
    assert [path.name for path in root.iterdir()] == ["k"]


def test_a_repeated_completion_takes_no_file_with_its_inode_for_its_own(
    store: ObjectStore, root: Path
) -> None:
    """File systems give the inode of an aborted upload to the next file."""
    old = store.create_upload("k")
    only = part(store, "k", old, b"old!")
    store.abort_upload("k", old)
    new = store.create_upload("k")
    store.complete_upload("k", new, [part(store, "k", new, b"new!")], size_bytes=4)
    late = f"{old.partition('-')[0]}-{(root / 'k').stat().st_ino}"
    with pytest.raises(errors.NotFound):
        store.complete_upload("k", late, [only], size_bytes=4, crc32c=crc32c(b"old!"))
    assert (root / "k").read_bytes() == b"new!"
    # The one that did write it may say so again.
    store.complete_upload("k", new, [only], size_bytes=4, crc32c=crc32c(b"new!"))


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
