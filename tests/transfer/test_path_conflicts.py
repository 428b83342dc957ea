"""A file in the place of a folder, and the reverse, when files are the destination of a sync."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.transfer.samples import fleet_of, status

from skyplane_gateway.common.errors import PermissionDenied
from skyplane_gateway.stores import Asides
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.cli.main import main
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.transfer import path_conflicts
from skyplane_orchestration.transfer.path_conflicts import with_put_back
from skyplane_orchestration.transfer.results import result_of

#: The command with these arguments: its status, its document, and what it said.
Sync = Callable[..., tuple[int, dict[str, Any], str]]

ASIDE = ".skyplane/aside"


def fill(folder: Path, **files: str) -> None:
    """Names in which `__` is a slash; one without a text is a folder."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        (path.parent if text else path).mkdir(parents=True, exist_ok=True)
        if text:
            path.write_text(text)


def found(folder: Path) -> dict[str, str]:
    """All files but journals."""
    paths = (
        one
        for one in folder.rglob("*")
        if one.is_file() and not {"jobs", "manifest"} & {*one.parts}
    )
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


@pytest.fixture
def ends(tmp_path: Path) -> tuple[Path, Path]:
    here, there = tmp_path / "src", tmp_path / "dst"
    fill(here, keep="k", a__deep__f="new", b="file", c__d="new", e="file")
    fill(there, keep="k", a="old", b__x__y="old", b__z="old", c__d__w="old", e="")
    return here, there


NEW = {"keep": "k", "a/deep/f": "new", "b": "file", "c/d": "new", "e": "file"}
OLD = {"keep": "k", "a": "old", "b/x/y": "old", "b/z": "old", "c/d/w": "old"}


@pytest.fixture
def sync(
    ends: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Sync:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def run(*options: str) -> tuple[int, dict[str, Any], str]:
        places = tuple(map(str, ends))
        status = main(["sync", *places, *options, "--gateways", "never", "--json"])
        said = capsys.readouterr()
        return status, json.loads(said.out), said.err

    return run


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Last segments of keys whose writes fail."""
    names: set[str] = set()
    honest = LocalStore.put

    def put(self: LocalStore, key: str, *arguments: Any, **more: Any) -> Any:
        if key.rpartition("/")[2] in names:
            raise PermissionDenied(f"not {key}")
        return honest(self, key, *arguments, **more)

    monkeypatch.setattr(LocalStore, "put", put)
    return names


DELETE = ("--delete", "--max-delete", "100%")


def test_what_is_in_the_way_is_deleted(ends: tuple[Path, Path], sync: Sync, tmp_path: Path) -> None:
    manifest = tmp_path / "rows.jsonl"
    status, document, _ = sync(*DELETE, "--manifest", str(manifest))
    assert (status, document["copied"], document["deleted"]) == (0, 5, 4)
    assert found(ends[1]) == NEW
    assert [one.name for one in (ends[1] / ".skyplane").iterdir()] == ["manifest"]
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    deleted = {row["destination"] for row in rows if row["state"] == "deleted"}
    assert deleted == {f"{ends[1].as_uri()}/{name}" for name in ("a", "b/x/y", "b/z", "c/d/w")}
    assert sync(*DELETE)[1]["deleted"] == 0


def test_without_delete_each_is_refused_in_one_clear_line(
    ends: tuple[Path, Path], sync: Sync
) -> None:
    status, document, _ = sync()
    assert status == 1
    assert found(ends[1]) == OLD
    reasons = {
        Path(row["destination"]).name: row["reason"] for row in document["result"]["failures"]
    }
    assert set(reasons) == {"f", "b", "d", "e"}
    assert f"{ends[1]}/a is a file, and a folder is needed there" in reasons["f"]
    assert f"{ends[1]}/b is a folder, and a file is needed there" in reasons["b"]
    assert all("as a sync with delete does" in text for text in reasons.values())


@pytest.mark.parametrize("protected", ["/a", "b/z", "b/x/"])
def test_what_a_filter_protects_stays_in_the_way(
    ends: tuple[Path, Path], sync: Sync, caplog: pytest.LogCaptureFixture, protected: str
) -> None:
    status, document, _ = sync(*DELETE, "--exclude", protected)
    assert status == 1
    assert "stays in the way of a copy" in caplog.text
    assert [row["code"] for row in document["result"]["failures"]] == ["invalid-key"]
    there = found(ends[1])
    kept = {name: text for name, text in OLD.items() if name[0] == protected.strip("/")[0]}
    assert kept.items() <= there.items()


def test_other_things_than_files_stay_in_the_way(ends: tuple[Path, Path], sync: Sync) -> None:
    """Nothing deletes a pipe, a broken link, or an unfinished file of another transfer."""
    (ends[1] / "b/link").symlink_to("nowhere")
    os.mkfifo(ends[1] / "c/d/pipe")
    (ends[1] / "e/.skyplane-upload-0").touch()
    status, document, _ = sync(*DELETE)
    assert (status, document["result"]["failed"]) == (1, 3)
    for name in ("b/link", "b/x/y", "c/d/pipe", "c/d/w", "e/.skyplane-upload-0"):
        assert os.path.lexists(ends[1] / name)


def test_too_many_deletes_set_nothing_aside(ends: tuple[Path, Path], sync: Sync) -> None:
    status, document, _ = sync("--delete", "--max-delete", "1")
    assert (status, document["error"]["code"]) == (2, "too-many-deletes")
    assert found(ends[1]) == OLD


@pytest.mark.parametrize("names", [{"f"}, {"b"}, {"d"}, {"f", "b", "d", "e"}])
def test_it_is_put_back_if_the_copy_fails(
    ends: tuple[Path, Path], sync: Sync, failing: set[str], names: set[str]
) -> None:
    failing |= names
    status, document, _ = sync(*DELETE)
    assert (status, document["result"]["failed"]) == (1, len(names))
    there = found(ends[1])
    ways = {"f": ("a",), "b": ("b/x/y", "b/z"), "d": ("c/d/w",), "e": ()}
    for name, old in ways.items():
        for path in old:
            is_back = name in names
            assert (
                there.get(path) if is_back else there.get(f"{ASIDE}/{_run(ends[1])}/{path}")
            ) == "old"
    failing.clear()
    status, document, _ = sync(*DELETE)
    assert status == 0
    assert NEW.items() <= found(ends[1]).items()


def _run(there: Path) -> str:
    """The only run that has set something aside; empty for none."""
    return next((path.name for path in (there / ASIDE).glob("*")), "")


def test_half_of_a_folder_takes_the_place_and_the_report_tells_where_the_file_is(
    ends: tuple[Path, Path], sync: Sync, failing: set[str]
) -> None:
    fill(ends[0], a__good="new")
    failing |= {"f"}
    _, document, _ = sync(*DELETE)
    there = found(ends[1])
    aside = f"{ASIDE}/{_run(ends[1])}/a"
    assert (there["a/good"], there[aside]) == ("new", "old")
    assert any(str(ends[1] / ASIDE) in text for text in document["result"]["warnings"])
    failing.clear()
    status, document, _ = sync(*DELETE)
    assert status == 0
    assert found(ends[1])[aside] == "old"
    assert any("delete it, or move it" in text for text in document["warnings"])


KILLED = """
import os, signal, sys
from skyplane_gateway.stores.local.store import LocalStore
honest = LocalStore.put
def put(self, key, *arguments, **more):
    if key.endswith(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(self, key, *arguments, **more)
LocalStore.put = put
from skyplane_orchestration.cli.main import main
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.transfer.path_conflicts import with_put_back
from skyplane_orchestration.transfer.results import result_of
main(sys.argv[2:])
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["/f", "/b", "/keep2"])
def test_a_killed_run_loses_nothing(
    ends: tuple[Path, Path], sync: Sync, tmp_path: Path, name: str
) -> None:
    fill(ends[0], keep2="k2")
    arguments = ("sync", *map(str, ends), *DELETE, "--gateways", "never", "--json")
    environment = {**os.environ, "HOME": str(tmp_path / "home")}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, name, *arguments], env=environment, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL
    run = f"{ASIDE}/{_run(ends[1])}/"
    there = {path.removeprefix(run): text for path, text in found(ends[1]).items()}
    assert {path: there.get(path) for path in OLD} == OLD
    status, document, _ = sync(*DELETE)
    assert status == 0
    left = found(ends[1])
    assert {**NEW, "keep2": "k2"}.items() <= left.items()
    # Where a copy had taken the place, the old file is told.
    stays = {path for path in left if path.startswith(ASIDE)}
    assert bool(stays) == any("unfinished run" in text for text in document["warnings"])


def test_a_source_with_asides_gives_none_away(ends: tuple[Path, Path], sync: Sync) -> None:
    fill(ends[0] / ASIDE, run__x="old")
    status, document, _ = sync(*DELETE)
    assert (status, document["reserved"]) == (0, 1)
    assert found(ends[1]) == NEW


def test_asides_are_put_back_where_there_is_room(tmp_path: Path) -> None:
    fill(tmp_path, sub__a="a", sub__b__c="c", sub__d="d")
    asides = Asides(f"{tmp_path}/".lstrip("/"), "run")
    before = found(tmp_path)
    info = versions_in(tmp_path)
    assert not asides.take("sub/a", {"sub/a": "another version"})
    assert asides.take("sub/a", {"sub/a": info("sub/a")})
    assert asides.take("sub/b", {"sub/b/c": info("sub/b/c")})
    assert set(found(tmp_path)) == {f"{ASIDE}/run/sub/a", f"{ASIDE}/run/sub/b/c", "sub/d"}
    fill(tmp_path, sub__a__empty="", sub__b__new="n")
    assert asides.put_back() == ()
    assert found(tmp_path) == {**before, "sub/b/new": "n"}
    assert not (tmp_path / ".skyplane").exists()


def versions_in(folder: Path) -> Callable[[str], str]:
    from skyplane_gateway.stores.local.paths import etag_of

    return lambda name: etag_of((folder / name).stat())


def test_the_end_of_a_run_touches_no_other_one(ends: tuple[Path, Path]) -> None:
    there = ends[1]
    other = Asides(f"{there}/".lstrip("/"), "other")
    assert other.take("a", {"a": versions_in(there)("a")})
    job = TransferJob(Location(f"{ends[0]}/"), Location(f"{there}/"), delete=True)
    ended = result_of(job, fleet_of("ab"), status("succeeded"))
    (warning,) = with_put_back(job, ended).warnings
    assert f"'a' of an unfinished run stays in {other.place}" in warning
    assert not (there / "a").exists()


def test_what_an_earlier_try_set_aside_counts_as_deletes(
    ends: tuple[Path, Path], sync: Sync, failing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed try puts nothing back, and its listing had these files among its deletes."""
    failing |= {"f", "b", "d", "e"}
    with monkeypatch.context() as killed:
        killed.setattr(path_conflicts, "_put_back", lambda asides: ())
        assert sync(*DELETE, "--run", "r")[0] == 1
    failing.clear()
    status, document, _ = sync("--delete", "--max-delete", "3", "--run", "r")
    assert (status, document["error"]["code"]) == (2, "too-many-deletes")
    assert found(ends[1]) == OLD
    status, document, _ = sync("--delete", "--max-delete", "4", "--run", "r")
    assert (status, document["deleted"], found(ends[1])) == (0, 4, NEW)
