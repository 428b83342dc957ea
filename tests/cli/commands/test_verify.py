"""`skyplane-orch verify`: exit codes and output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.ports import free_port

from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.cli.conftest import RunJson


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        for key in "abc":
            (tmp_path / name / key).write_bytes(key.encode())
    return f"{tmp_path}/in", f"{tmp_path}/out"


def test_equal_places(places: tuple[str, str], run_json: RunJson) -> None:
    report = run_json("verify", "-r", *places)
    assert (report["is_equal"], report["objects"], report["equal"]) == (True, 3, 3)
    assert run_json("verify", f"{places[0]}/a", f"{places[1]}/a")["objects"] == 1


def test_differences(places: tuple[str, str], run_json: RunJson) -> None:
    Path(places[1], "a").write_bytes(b"z")
    Path(places[1], "d").write_bytes(b"d")
    report = run_json("verify", "-r", *places, "--extra", code=1)
    assert [row["kind"] for row in report["differences"]] == ["different", "extra"]
    assert run_json("verify", "-r", *places, "--exclude", "a")["is_equal"]
    report = run_json("verify", "-r", *places, "--exclude", "a", "--exclude", "d/", "--exclude=d")
    assert report["is_equal"]
    (warning,) = report["warnings"]
    assert "no key at either end matches exclude 'd/', so" in warning
    assert run_json("verify", "-r", *places, "--listing-only", "--parallel", "2")["is_equal"]


def test_the_text_has_differences_and_counts(
    places: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for key in "abc":
        Path(places[1], key).unlink()
    Path(places[1], "d").write_bytes(b"d")
    assert main(["verify", "-r", *places, "--extra"]) == 1
    printed = capsys.readouterr().out
    assert f"file://{places[0]}/b" in printed
    assert f"file://{places[1]}/d" in printed
    assert "0 of 3 objects are equal (0 B, by checksums)" in printed
    assert "3 missing, 0 different, 0 unreadable, 1 extra; 0 B read" in printed


def test_a_store_that_does_not_respond_is_bad_input(
    places: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    nowhere = ["s3://b/x/", "--dst-endpoint", f"http://127.0.0.1:{port}"]
    assert main(["verify", "-r", places[0], *nowhere]) == 2
    assert "s3://b" in capsys.readouterr().err
