from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tests.gateway.journal.samples import KEY, journal, upload

from skyplane_gateway.common.errors import PermissionDenied
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.journal.document import journal_key, place_of
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.journal.orphans import JournalIndex, is_unfinished_journal, old_orphan_files
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore


@given(
    st.lists(st.text(st.characters(exclude_characters="/")), max_size=4),
    st.text("0123456789abcdef", min_size=1, max_size=128),
    st.integers(0, 10**12),
)
def test_the_key_of_a_journal_names_its_transfer(names: list[str], key: str, epoch: int) -> None:
    folder = "".join(f"{name}/" for name in names)
    assert place_of(journal_key(folder, key, epoch)) == (folder, key)


@pytest.mark.parametrize(
    "key",
    [
        "",
        ".skyplane/jobs/",
        f".skyplane/jobs/{KEY}/",
        f".skyplane/jobs/{KEY}/1",
        f".skyplane/jobs/{KEY}/0000000001.bak",
        f".skyplane/jobs/{KEY}/0000000001/x",
        ".skyplane/jobs/may-delete",
        ".skyplane/jobs/MINE/0000000001",
        f"x.skyplane/jobs/{KEY}/0000000001",
        f"a/skyplane/jobs/{KEY}/0000000001",
    ],
)
def test_other_keys_are_no_journals(key: str) -> None:
    assert place_of(key) is None


def test_unfinished_files_of_killed_writers(tmp_path: Path) -> None:
    store = open_store(StoreSpec("file", str(tmp_path)))
    store.create_upload("out/a")
    folder = tmp_path / "out"
    token = [f"{number:032x}" for number in range(5)]
    orphans = [
        folder / f".skyplane-upload-{token[0]}",
        folder / f".skyplane-upload-{token[1]}.parts",
        folder / "sub" / f".skyplane-upload-{token[2]}",
    ]
    young = folder / f".skyplane-upload-{token[3]}"
    strange = folder / ".skyplane-upload-mine"
    (folder / "sub").mkdir()
    for path in (*orphans, young, strange, tmp_path / f".skyplane-upload-{token[4]}"):
        path.write_bytes(b"")
    for path in tmp_path.rglob("*"):
        if path != young:
            os.utime(path, (1000.0, 1000.0))
    found = old_orphan_files(store, "out/", 2000.0)
    assert [row.path for row in found] == sorted(orphans)
    assert all(row.written_unix_s == 1000.0 for row in found)
    for row in (*found, *found):
        row.remove()
    assert old_orphan_files(store, "out/", 2000.0) == []
    # An upload is not an orphan file; it is aborted.
    assert [row.key for row in store.list_uploads("out/")] == ["out/a"]
    assert young.exists()
    assert strange.exists()


def test_an_unfinished_journal_is_removed_with_its_folders(tmp_path: Path) -> None:
    store = open_store(StoreSpec("file", str(tmp_path)))
    folders = [tmp_path / "out" / ".skyplane" / "jobs" / key for key in (KEY, "cd" * 16)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / f".skyplane-upload-{'0' * 32}").write_bytes(b"{")
    found = old_orphan_files(store, "", 1e12)
    assert [is_unfinished_journal(row) for row in found] == [True, True]
    found[0].remove()
    assert folders[1].exists()
    assert not folders[0].exists()
    found[1].remove()
    found[1].remove()
    assert [path.name for path in tmp_path.rglob("*")] == ["out"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_is_an_error(tmp_path: Path) -> None:
    store = open_store(StoreSpec("file", str(tmp_path)))
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(PermissionDenied):
        old_orphan_files(store, "", 2000.0)


def test_other_stores_have_no_unfinished_files() -> None:
    assert old_orphan_files(open_store(StoreSpec("memory", "b")), "", 1e12) == []


def test_names_and_unreadable_journals_come_from_one_read(
    store: ObjectStore, folder: JournalFolder, misreadings: list[bytes]
) -> None:
    """Two reads could find no names first, and then no fault: it would seem an orphan."""
    folder.write(journal(uploads=(upload("out/k", store.create_upload("out/k")),)), None)
    (named,) = store.list_uploads("out/")
    misreadings.extend([b"{", b"{"])
    index = JournalIndex(store)
    assert not index.names(named)
    assert index.unreadable(named) is not None
