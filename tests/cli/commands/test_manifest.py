"""`manifest` lists, shows, compares, verifies and exports what a place was made of."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import RunJson
from tests.storage.manifest.places import commit

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.storage.manifest.signature import ManifestKey


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A private key as the documentation makes it, beside its public half."""
    path = tmp_path / "key.pem"
    for words in (
        ["genpkey", "-algorithm", "ed25519", "-out", str(path)],
        ["pkey", "-in", str(path), "-pubout", "-out", str(tmp_path / "pub.pem")],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    return path


@pytest.fixture
def place(tmp_path: Path, key: Path) -> Path:
    """Two signed commits: a and b\\n; then another a and c."""
    folder = tmp_path / "dst"
    folder.mkdir()
    for name in ("a", "b\n"):
        (folder / name).write_text("1")
    signing = ManifestKey.for_signing(str(key))
    commit(Location(f"{folder}/"), ["a", "b\n"], key=signing, run="owner/first")
    for name in ("a", "c"):
        (folder / name).write_text("22")
    commit(Location(f"{folder}/"), ["a", "c"], key=signing, version="v2")
    return folder


def lines(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[str]:
    assert main(["manifest", *words]) == code
    output = capsys.readouterr()
    assert output.err == ""
    return output.out.splitlines()


def test_list(place: Path, capsys: pytest.CaptureFixture[str], run_json: RunJson) -> None:
    _, *rows = lines(capsys, "list", str(place))
    assert [row.split()[0] for row in rows] == ["1", "2"]
    assert "2023-11-14 22:13:20" in rows[0]
    assert rows[0].endswith("owner/first")
    first, _ = run_json("manifest", "list", str(place))["runs"]
    assert (first["commit"], first["copied"], first["run"]) == (1, 2, "owner/first")
    assert first["committed_unix_s"] == 1_700_000_000


def test_show(place: Path, capsys: pytest.CaptureFixture[str], run_json: RunJson) -> None:
    assert lines(capsys, "show", str(place), "--prefix", "c") == [
        "   2 2023-11-14 22:13:20          2 c <- s3://lake/c v2"
    ]
    assert [line.split(" <- ")[0][-3:] for line in lines(capsys, "show", str(place))] == [
        "2 a", "b\\n", "2 c",
    ]  # fmt: skip
    document = run_json("manifest", "show", str(place), "--run", "owner/first")
    assert [row["key"] for row in document["rows"]] == ["a", "b\n"]
    assert document["run"]["commit"] == 1


def test_diff(place: Path, capsys: pytest.CaptureFixture[str], run_json: RunJson) -> None:
    assert lines(capsys, "diff", str(place), "1", "2") == [
        "added    c", "changed  a", "1 added, 1 changed, 0 removed",
    ]  # fmt: skip
    (place / "c").unlink()
    (place / "d").touch()
    assert run_json("manifest", "diff", str(place), "--against-store") == {
        "added": ["d"], "changed": [], "removed": ["c"],
    }  # fmt: skip


def test_verify(place: Path, capsys: pytest.CaptureFixture[str], run_json: RunJson) -> None:
    (line,) = lines(capsys, "verify", str(place))
    assert line == "3 of 3 rows have their object; 0 missing, 0 changed, 0 objects without a row"
    (place / "b\n").unlink()
    assert lines(capsys, "verify", str(place), code=1)[0] == "missing: b\\n"
    document = run_json("manifest", "verify", str(place), code=1)
    assert (document["is_equal"], document["missing"]) == (False, ["b\n"])


def test_findings_are_capped(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"n{number}" for number in range(30)]
    for name in names:
        (place / name).touch()
    commit(Location(f"{place}/"), names)
    for name in names:
        (place / name).unlink()
    found = lines(capsys, "verify", str(place), code=1)
    assert (len(found), found[20]) == (22, "and 10 more")


def test_verify_with_a_key(place: Path, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    public = str(key.with_name("pub.pem"))
    _, first, second, _ = lines(capsys, "verify", str(place), "--key", public)
    assert " signed " in first
    assert " signed " in second
    commit(Location(f"{place}/"), ["a"])
    found = lines(capsys, "verify", str(place), "--key", public, code=1)
    assert found[-2] == "unsigned: the signature of run 3"


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_export(place: Path, tmp_path: Path, run_json: RunJson, suffix: str) -> None:
    target = tmp_path / f"rows{suffix}"
    document = run_json("manifest", "export", str(place), "--to", str(target), "--run", "1")
    assert document == {"url": f"file://{target}"}
    if suffix == ".jsonl":
        rows = [json.loads(line) for line in target.read_text().splitlines()]
        assert [row["key"] for row in rows] == ["a", "b\n"]


@pytest.mark.parametrize(
    ("words", "clue"),
    [
        ("list {tmp}/nothing", "has no manifest; a sync makes one"),
        ("list s9://bucket/", "has a scheme that is not known"),
        ("list {dst} --src-endpoint http://127.0.0.1:1", "--src-endpoint has no effect"),
        ("show {dst} --run 7", "has no run '7'; it has 1, 2"),
        ("diff {dst} 1", "give two RUNs, or --against-store"),
        ("diff {dst} 1 2 --against-store", "give two RUNs, or --against-store"),
        ("diff {dst} 1 nobody", "has no run 'nobody'"),
        ("verify {dst} --key {tmp}/key.pem", "--key '{tmp}/key.pem' is no public Ed25519 key"),
        ("verify {dst} --key {tmp}/nothing", "--key '{tmp}/nothing' cannot be read: No such file"),
        ("export {dst} --to {tmp}/x.xls", "cannot be written as .xls"),
        ("export {dst}", "--to"),
    ],
)
def test_bad_input(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, clue: str
) -> None:
    assert main(["manifest", *(one.format(dst=place, tmp=tmp_path) for one in words.split())]) == 2
    output = capsys.readouterr()
    assert clue.format(tmp=tmp_path) in output.err
    assert (output.out, output.err.count("\n")) == ("", 1)


@pytest.mark.parametrize("body", ["{", '{"schema_version": 9}', "[]"])
def test_a_manifest_that_cannot_be_read(
    place: Path, capsys: pytest.CaptureFixture[str], body: str
) -> None:
    (place / ".skyplane/manifest/pointer.json").write_text(body)
    assert main(["manifest", "verify", str(place)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.e2e
def test_a_sync_signs(tmp_path: Path, key: Path, run_json: RunJson) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a").write_text("a")
    ends = str(tmp_path / "src"), str(tmp_path / "new")
    assert main(["sync", *ends, "--manifest-key", f"{key}.not", "-q"]) == 2
    assert not (tmp_path / "new").exists()
    assert str(key) not in json.dumps(run_json("sync", *ends, "--manifest-key", str(key)))
    public = str(key.with_name("pub.pem"))
    document = run_json("manifest", "verify", ends[1], "--key", public)
    assert (document["rows"], document["signatures"]) == (1, {"1": "signed"})
