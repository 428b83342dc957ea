"""`bundle` writes a file; pip is a stand-in that downloads as the real one does."""

from __future__ import annotations

import hashlib
import json
import stat
import sys
import zipfile
from pathlib import Path

import pytest

from skyplane_orchestration.cli.main import main

PIP = """#!{python}
import pathlib, sys
words = sys.argv[1:]
after = lambda name: words[words.index(name) + 1]
assert words[:3] == ["-m", "pip", "download"] and "--require-hashes" in words, words
pins = pathlib.Path(after("--requirement")).read_text()
assert "aiohttp==" in pins and "--hash=sha256:" in pins
if after("--python-version") == "3.12":
    sys.exit("ERROR: no matching distribution")
folder = pathlib.Path(after("--dest"))
folder.mkdir(exist_ok=True)
architecture = after("--platform").removeprefix("manylinux2014_")
(folder / f"aiohttp-{{after('--python-version')}}-{{architecture}}.whl").write_text("wheel")
(folder / "any.whl").write_text("wheel")
"""


@pytest.fixture(autouse=True)
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "python"
    path.write_text(PIP.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(path))


def test_a_bundle_has_the_wheels_of_both_architectures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bundle.zip"
    assert main(["bundle", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == {
        "file": str(path),
        "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    names = zipfile.ZipFile(path).namelist()
    assert [name for name in names if name.startswith("wheels/")] == [
        "wheels/aiohttp-3.11-aarch64.whl",
        "wheels/aiohttp-3.11-x86_64.whl",
        "wheels/aiohttp-3.13-aarch64.whl",
        "wheels/aiohttp-3.13-x86_64.whl",
        "wheels/any.whl",
    ]
    assert {"pip/__main__.py", "skyplane_gateway/main.py"} < set(names)


def test_a_bundle_that_cannot_be_made_leaves_the_old_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bundle.zip"
    path.write_text("old")
    assert main(["bundle", str(path), "--python", "3.12"]) == 1
    assert "for Python 3.12 on x86_64: ERROR: no matching" in capsys.readouterr().err
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.glob(".bundle*")] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["FILE", "--python", "3.10"], "--python '3.10' is not a version"),
        (["none/FILE"], "FILE: there is no folder"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", str(tmp_path / words[0]), *words[1:]]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
