"""`ls` prints what `aws s3 ls` does, in the order of keys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.conftest import RunJson

from skyplane_orchestration.cli.main import main


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TZ", "UTC")
    for name in ("a.csv", "b\x1b", "sub/x", "sub/deep/y", "sub-b"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * len(name))
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return tmp_path / "tree"


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["ls", *words]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    return output.out.splitlines()


@pytest.mark.parametrize("slash", ["", "/"])
def test_one_level(tree: Path, capsys: pytest.CaptureFixture[str], slash: str) -> None:
    found = lines(capsys, f"{tree}{slash}")
    assert [line[19:] for line in found] == [
        "          5 a.csv",
        "          2 b\\x1b",
        "          5 sub-b",
        "        PRE sub/",
    ]
    assert found[0].startswith("2023-11-1")


def test_all_levels_with_sums(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, "-r", str(tree), "--summarize")
    assert [line.split()[-1] for line in found[:-1]] == [
        *("a.csv", "b\\x1b", "sub-b", "sub/deep/y", "sub/x"),
    ]
    assert found[-1] == "5 objects, 27 bytes (27 B)"


def test_one_file_is_no_begin_of_names(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "a.csv.gz").touch()
    assert [line.split()[-1] for line in lines(capsys, "-l", f"{tree}/a.csv")] == ["a.csv"]


def test_json_has_urls_and_sums(tree: Path, run_json: RunJson) -> None:
    document = run_json("ls", str(tree))
    assert document["summary"] == {"objects": 3, "folders": 1, "bytes": 12}
    first, *_, last = document["objects"]
    assert (first["url"], first["bytes"]) == (f"file://{tree}/a.csv", 5)
    assert first["modified"] == "2023-11-14T22:13:20+00:00"
    assert last == {"kind": "folder", "url": f"file://{tree}/sub/", "key": f"{tree}/sub/"[1:]}


def test_nothing_there_is_bad_input(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", f"{tree}/none"]) == 2
    assert "there is nothing at" in capsys.readouterr().err
    (tree / "empty").mkdir()
    assert lines(capsys, f"{tree}/empty") == []
