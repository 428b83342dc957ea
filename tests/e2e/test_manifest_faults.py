"""Whole syncs whose manifest is damaged, old, foreign or gone: never wrong, and one line says why.

The command runs inside the test's process, unless it is killed.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.e2e.pairs import MIB, Pair, Run, runner
from tests.e2e.places import UNAVAILABLE, Place, emulated

from skyplane_gateway.manifest.document import INDEX_SUFFIX, read_pointer
from skyplane_gateway.manifest.reader import ManifestReader
from skyplane_gateway.stores.base import read_object
from skyplane_gateway.stores.local.publish import publish
from skyplane_orchestration.storage.manifest import commit as commit_module

if TYPE_CHECKING:
    from tests.e2e.conftest import Home

pytestmark = pytest.mark.e2e

KINDS: Final = ("s3", "gcs", "azure", "file")
#: The others are for `make test-long`.
PAIRS: Final = [
    pytest.param(
        ends, id="-".join(ends), marks=() if ends == ("file", "file") else pytest.mark.long
    )
    for ends in product(KINDS, KINDS)
    if "file" in ends or ends[0] == ends[1]
]
NAMES: Final = ("a", "b/c", "d e", "é")
MANIFEST: Final = ".skyplane/manifest/"
PUBLISH: Final = "skyplane_gateway.stores.local.store.publish"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    try:
        with emulated(tmp_path_factory.mktemp("faults"), "faults") as made:
            yield made
    except UNAVAILABLE as error:
        pytest.skip(str(error))


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    ends = getattr(request, "param", ("file", "file"))
    (tmp_path / "files").mkdir()
    files = Place("file", str(tmp_path / "files"))
    places = {"file": files}
    if set(ends) != {"file"}:
        places = request.getfixturevalue("places")
    made = Pair(*(places[kind] for kind in ends))
    for name in NAMES:
        made.write(name, b"1" * 9)
    yield made
    made.close()


@pytest.fixture
def run(home: Home, pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    places = dict(zip(("src", "dst"), pair.ends, strict=True))
    return runner(home, places, monkeypatch, capsys)


def manifest_keys(pair: Pair, suffix: str = "") -> list[str]:
    listed = pair.there.list(pair.copy_key(MANIFEST))
    return [info.key for info in listed if info.key.endswith(suffix)]


def body_of(pair: Pair, key: str) -> bytes:
    return read_object(pair.there, key, max_bytes=1 << 20)[1]


def is_right(pair: Pair, names: tuple[str, ...] = NAMES) -> bool:
    """The copies are equal to their sources, and no row of the manifest is without its object."""
    assert {name: pair.copied(name) for name in names} == {name: pair.read(name) for name in names}
    return rows_have_objects(pair)


def rows_have_objects(pair: Pair) -> bool:
    folder = pair.copy_key("")
    found = read_pointer(pair.there, folder)
    for row in ManifestReader(pair.there, folder).rows() if found else ():
        if row.copy:
            pair.there.head(folder + row.key)
    return True


def about_manifest(result: dict[str, Any]) -> list[str]:
    return [one for one in result["warnings"] if "manifest of the destination" in one]


def all_files(pair: Pair, suffix: str, change: Callable[[bytes], bytes | None]) -> None:
    for key in manifest_keys(pair, suffix):
        changed = change(body_of(pair, key))
        if changed is None:
            pair.there.delete(key)
        else:
            pair.there.put(key, changed)


def _cut(body: bytes) -> bytes:
    return body[: len(body) // 2]


def _other(body: bytes) -> bytes:
    return bytes(len(body))


def _gone(body: bytes) -> None:
    return None


def _newer(body: bytes) -> bytes:
    return body.replace(b'"schema_version": 1', b'"schema_version": 2')


#: How the manifest is damaged, whether a line tells so, and whether the next run has a whole one.
DAMAGES: Final = {
    "index gone": (".index", _gone, True, True),
    "index cut": (".index", _cut, True, True),
    "index of other bytes": (".index", _other, True, True),
    "rows gone": (".segment", _gone, False, True),
    "rows cut": (".segment", _cut, False, True),
    "rows of other bytes": (".segment", _other, False, True),
    "pointer gone": ("pointer.json", _gone, False, True),
    "pointer cut": ("pointer.json", _cut, True, True),
    "pointer empty": ("pointer.json", lambda _: b"", True, True),
    "newer schema": ("pointer.json", _newer, True, False),
    "all gone, by a rule": ("", _gone, False, True),
}


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_every_copy_has_a_row_by_which_it_is_equal(run: Run, pair: Pair) -> None:
    """Of one part or several, without bytes, marks of folders, and what comes later."""
    pair.write("large", b"1" * 6 * MIB)
    pair.write("part", b"1" * 5 * MIB)
    pair.write("zero", b"")
    if pair.ends[0].kind != "file":
        pair.write("mark/", b"")
    run("sync", *pair.arguments)
    pair.write("later", b"1")
    run("sync", *pair.arguments)
    planned = run("sync", *pair.arguments, "--dry-run")["objects"]
    by_row = "source and copy are as the manifest has them (conflict rule: replace-if-different)"
    marks = [row for row in planned if row["source"].endswith("mark/")]
    assert {row["reason"] for row in planned if row not in marks} == {by_row}
    assert {row["action"] for row in planned} == {"skip"}
    # What only the manifest tells is the same.
    trusted = run("sync", *pair.arguments, "--trust-manifest")
    assert (trusted["copied"], trusted["skipped"]) == (0, len(planned))


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_a_damaged_manifest_is_done_without(
    run: Run, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    assert run("sync", *pair.arguments)["copied"] == len(NAMES)
    for number, (damage, (suffix, change, is_told, heals)) in enumerate(DAMAGES.items()):
        all_files(pair, suffix, change)
        pair.write("a", str(number).encode() * 9)
        caplog.clear()
        result = run("sync", *pair.arguments)
        assert result["copied"] >= 1, damage
        told = [one for one in about_manifest(result) if "without the manifest" in one]
        assert len(told) == is_told, (damage, result["warnings"])
        reader = "skyplane_gateway.manifest.reader"
        assert sum(row.name == reader for row in caplog.records) <= 2, damage
        if not heals:
            all_files(pair, "pointer.json", _gone)
        assert is_right(pair), damage
        pair.write("a", str(number).encode() * 9 + b"x")
        result = run("sync", *pair.arguments)
        assert result["copied"] >= 1, damage
        assert about_manifest(result) == [], damage
        assert is_right(pair), damage


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_a_pointer_behind_or_ahead_of_its_segments_is_never_wrong(run: Run, pair: Pair) -> None:
    pointers, segments = [], []
    for data in (b"2", b"3", b"4"):
        pair.write("a", data * 9)
        run("sync", *pair.arguments)
        (key,) = manifest_keys(pair, "pointer.json")
        pointers.append(body_of(pair, key))
        segments.append({one: body_of(pair, one) for one in manifest_keys(pair)})
    # Behind: it knows of no later run.
    pair.there.put(key, pointers[0])
    pair.write("b/c", b"5" * 9)
    assert run("sync", *pair.arguments)["copied"] >= 1
    assert is_right(pair)
    # Ahead: the last segments are not there.
    pair.there.put(key, pointers[2])
    for name in set(segments[2]) - set(segments[0]):
        pair.there.delete(name)
    pair.write("b/c", b"6" * 9)
    result = run("sync", *pair.arguments)
    assert result["copied"] >= 1
    assert len(about_manifest(result)) == 1
    assert is_right(pair)
    assert run("sync", *pair.arguments)["copied"] == 0


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_a_manifest_of_another_destination_is_not_believed(run: Run, pair: Pair) -> None:
    """Another tool has copied a place with its manifest, and has then edited a copy."""
    run("sync", *pair.arguments)
    other = Pair(*pair.ends)
    for info in list(pair.there.list(pair.copy_key(""))):
        name = info.key.removeprefix(pair.copy_key(""))
        other.there.put(other.copy_key(name), body_of(pair, info.key))
    for name in NAMES:
        other.write(name, b"1" * 9)
    other.write("a", b"2" * 9)
    result = run("sync", *other.arguments)
    assert [one for one in about_manifest(result) if "not of this place" in one]
    assert len(about_manifest(result)) == 1
    assert is_right(other)
    other.write("a", b"3" * 9)
    assert about_manifest(run("sync", *other.arguments)) == []
    assert is_right(other)
    other.close()


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_copies_that_a_rule_deletes_are_copied_again(run: Run, pair: Pair) -> None:
    run("sync", *pair.arguments)
    for gone in (("a",), NAMES):
        for name in gone:
            pair.there.delete(pair.copy_key(name))
        assert run("sync", *pair.arguments)["copied"] == len(gone)
        assert is_right(pair)


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_two_sources_take_turns_at_one_destination(run: Run, pair: Pair) -> None:
    other = Pair(*pair.ends)
    for name in NAMES:
        other.write(name, b"2" * 9)
    other.write("only", b"3")
    words = list(other.arguments)
    at = words.index(next(one for one in words if f"dst-{other.prefix}" in one))
    words[at] = words[at].replace(other.prefix, pair.prefix)
    for _ in range(2):
        assert run("sync", *pair.arguments)["copied"] >= len(NAMES)
        assert is_right(pair)
        assert run("sync", *pair.arguments)["copied"] == 0
        assert run("sync", *words)["copied"] >= len(NAMES)
        assert {name: pair.copied(name) for name in NAMES} == dict.fromkeys(NAMES, b"2" * 9)
        assert run("sync", *words)["copied"] == 0
    other.close()


def test_two_sources_whose_files_have_one_time_take_turns(run: Run, pair: Pair) -> None:
    """As builds that can be repeated have them: times and sizes tell nothing."""
    other = Pair(*pair.ends)
    for source, data in ((pair, b"1" * 9), (other, b"2" * 9)):
        for name in NAMES:
            source.write(name, data)
            os.utime(f"/{source.source_key(name)}", (0, 1e9))
    words = [other.arguments[0], pair.arguments[1]]
    for arguments, data in ((pair.arguments, b"1"), (words, b"2"), (pair.arguments, b"1")):
        assert run("sync", *arguments)["copied"] == len(NAMES)
        assert {pair.copied(name) for name in NAMES} == {data * 9}
        assert run("sync", *arguments)["copied"] == 0
    other.close()


def test_a_destination_that_is_reached_by_a_link_keeps_its_manifest(run: Run, pair: Pair) -> None:
    run("sync", *pair.arguments)
    link = f"{pair.ends[1].bucket}/link"
    os.symlink(f"/{pair.copy_key('')}", link)
    Path(f"/{pair.copy_key('a')}").write_bytes(b"2" * 9)
    os.utime(f"/{pair.copy_key('a')}", (0, pair.here.head(pair.source_key("a")).last_modified))
    result = run("sync", pair.arguments[0], f"{link}/")
    assert (result["copied"], about_manifest(result)) == (1, []), result["warnings"]
    assert about_manifest(run("sync", *pair.arguments)) == []
    assert is_right(pair)


def test_a_manifest_whose_files_have_times_of_other_days_is_kept(run: Run, pair: Pair) -> None:
    """The clock of who wrote them was wrong."""
    for number, days in enumerate((-2, 2, -400, 400)):
        pair.write("a", str(number).encode() * 9)
        run("sync", *pair.arguments)
        at_s = time.time() + days * 86400
        for key in manifest_keys(pair)[number % 2 :: 2]:
            os.utime(f"/{key}", (at_s, at_s))
        assert is_right(pair)
    assert run("sync", *pair.arguments)["copied"] == 0


@pytest.mark.parametrize("shift_s", [-86_400, 86_400])
def test_sources_of_another_day_are_found_by_their_rows(
    run: Run, pair: Pair, shift_s: float
) -> None:
    """Neither the size nor the rule of times would tell."""
    run("sync", *pair.arguments)
    path = f"/{pair.source_key('a')}"
    before = os.stat(path)
    Path(path).write_bytes(b"2" * 9)
    os.utime(path, (0, before.st_mtime + shift_s))
    assert run("sync", *pair.arguments)["copied"] == 1
    # An edit that gets its time back is found by the inode.
    Path(path).write_bytes(b"3" * 9)
    os.utime(path, (0, before.st_mtime + shift_s))
    assert run("sync", *pair.arguments)["copied"] == 1
    assert is_right(pair)


@pytest.mark.parametrize("suffix", [".segment", INDEX_SUFFIX, "pointer.json"])
def test_a_disk_that_is_full_keeps_no_manifest(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    assert run("sync", *pair.arguments)["copied"] == len(NAMES)

    def full(draft: Path, key: str, *more: Any) -> Any:
        if MANIFEST in key and key.endswith(suffix):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return publish(draft, key, *more)

    pair.write("a", b"2" * 9)
    with monkeypatch.context() as patched:
        patched.setattr(PUBLISH, full)
        result = run("sync", *pair.arguments)
    assert (result["copied"], len(about_manifest(result))) == (1, 1), result["warnings"]
    assert is_right(pair)
    # Nobody knows who has written the copy that no row has.
    assert run("sync", *pair.arguments)["copied"] <= 1
    assert run("sync", *pair.arguments)["copied"] == 0
    assert is_right(pair)


def test_deletes_that_no_manifest_could_note_leave_no_row(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("sync", *pair.arguments)

    def full(draft: Path, key: str, *more: Any) -> Any:
        if MANIFEST in key:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return publish(draft, key, *more)

    pair.here.delete(pair.source_key("a"))
    with monkeypatch.context() as patched:
        patched.setattr(PUBLISH, full)
        result = run("sync", "--delete", *pair.arguments)
    assert (result["deleted"], len(about_manifest(result))) == (1, 1), result["warnings"]
    assert is_right(pair, NAMES[1:])
    pair.write("a", b"1" * 9)
    assert run("sync", *pair.arguments)["copied"] == 1
    assert is_right(pair)


def test_a_file_that_became_a_folder_leaves_no_row(run: Run, pair: Pair) -> None:
    run("sync", *pair.arguments)
    pair.here.delete(pair.source_key("a"))
    pair.write("a/b", b"2")
    assert run("sync", "--delete", *pair.arguments)["deleted"] == 1
    assert is_right(pair, ("a/b", *NAMES[1:]))
    pair.here.delete(pair.source_key("a/b"))
    os.rmdir(f"/{pair.source_key('a')}")
    pair.write("a", b"1" * 9)
    assert run("sync", "--delete", *pair.arguments)["deleted"] == 1
    assert is_right(pair)


def test_a_write_to_a_copy_while_the_run_goes_on_is_found(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit looks at the copies."""
    make = commit_module.ManifestCommit.run

    def edited_first(self: Any, rows: Any) -> Any:
        path = Path(f"/{pair.copy_key('a')}")
        path.write_bytes(b"2" * 9)
        return make(self, rows)

    with monkeypatch.context() as patched:
        patched.setattr(commit_module.ManifestCommit, "run", edited_first)
        run("sync", *pair.arguments)
    assert run("sync", *pair.arguments)["copied"] == 1
    assert is_right(pair)


def test_chmod_of_either_end_copies_nothing_however_often(run: Run, pair: Pair) -> None:
    run("sync", *pair.arguments)
    for mode in (0o600, 0o640, 0o644):
        for key in (pair.source_key("a"), pair.copy_key("a")):
            os.chmod(f"/{key}", mode)
            assert run("sync", *pair.arguments)["copied"] == 0, (mode, key)
    assert is_right(pair)


#: Runs the command, and kills the process before or after a request about the manifest.
KILLED: Final = """
import os, random, signal, sys
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.cli.main import main

rng = random.Random(int(sys.argv.pop(1)))
left, is_before = rng.randrange(14), rng.random() < 0.5

def counted(name):
    request = getattr(LocalStore, name)
    def call(self, key, *more, **named):
        global left
        left -= ".skyplane/manifest" in key
        if left < 0 and is_before:
            os.kill(os.getpid(), signal.SIGKILL)
        found = request(self, key, *more, **named)
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    setattr(LocalStore, name, call)

for name in ("list", "head", "read", "put", "delete"):
    counted(name)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("seeds", [(3, 4), pytest.param(range(20), marks=pytest.mark.long)])
def test_after_a_kill_no_row_is_without_its_object(
    run: Run, pair: Pair, seeds: Iterable[int]
) -> None:
    run("sync", *pair.arguments)
    words = ["sync", "--gateways", "never", "--delete", "--max-delete", "100%", *pair.arguments]
    killed = 0
    for seed in seeds:
        rng = random.Random(seed)
        names = [f"n{rng.randrange(9)}" for _ in range(4)]
        for name in names:
            pair.write(name, rng.randbytes(rng.randrange(9)))
        for name in {f"n{number}" for number in range(9)} - set(names):
            pair.here.delete(pair.source_key(name))
        ended = subprocess.run(
            [sys.executable, "-c", KILLED, str(seed), *words], capture_output=True, check=False
        )
        killed += ended.returncode == -signal.SIGKILL
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        assert rows_have_objects(pair), seed
        run("sync", "--delete", "--max-delete", "100%", *pair.arguments)
        assert is_right(pair, (*NAMES, *names)), seed
        listed = [
            info.key.removeprefix(pair.copy_key("")) for info in pair.there.list(pair.copy_key(""))
        ]
        assert {name for name in listed if not name.startswith(".")} == {*NAMES, *names}
    assert killed


@pytest.mark.long
@pytest.mark.parametrize("pair", [("s3", "file")], indirect=True)
def test_edits_of_copies_with_escaped_keys_are_found(run: Run, pair: Pair) -> None:
    """Such a key is looked up alone, out of the order of the listing."""
    names = {"a": "a", "m//n": None, "z": "z"}
    for name in names:
        pair.write(name, b"1" * 9)
    words = (*pair.arguments, "--on-illegal-key", "escape")
    assert run("sync", *words)["copied"] == len(NAMES) + 2
    copies = [info for info in pair.there.list(pair.copy_key("")) if MANIFEST not in info.key]
    for info in copies:
        Path(f"/{info.key}").write_bytes(b"2" * 9)
        os.utime(f"/{info.key}", (0, info.last_modified))
    assert run("sync", *words)["copied"] == len(copies)
    assert {body_of(pair, info.key) for info in copies} == {b"1" * 9}
    assert run("sync", *words)["copied"] == 0
