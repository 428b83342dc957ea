"""Keys may hold any character; none of them steers the console."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tests.transfer import samples

from skyplane_orchestration.cli.console import Console, configure_logging, print_error, printable
from skyplane_orchestration.cli.main import main
from skyplane_orchestration.cli.result_lines import result_parts
from skyplane_orchestration.model.result import FailedObject

#: Ends the line, moves the cursor, sets the window's title, turns the text round.
EVIL = "a\x1b[2Kb\rc\x1b]0;title\x07\n\u202ed\x9b1m"
SHOWN = r"a\x1b[2Kb\rc\x1b]0;title\x07\n\u202ed\x9b1m"


@given(st.text())
def test_printable_characters_stay_and_others_are_escaped(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert all(one in shown for one in text if one.isprintable())


def test_ordinary_keys_stay_as_they_are() -> None:
    for key in ("data/2024-01-01/part 1.parquet", "größe/日本", "a\\b", "[bold]x[/bold]"):
        assert printable(key) == key
    assert printable(EVIL) == SHOWN
    assert printable("file-\udc80") == r"file-\udc80"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / EVIL.replace("/", "_")).write_bytes(b"x")
    return tmp_path


def test_a_preview_shows_keys_escaped(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cp", "-r", "--dry-run", f"{tree}/in", f"{tree}/out"]) == 0
    said = capsys.readouterr().out
    assert SHOWN[:12] in said  # a long name is cut
    assert all(line.isprintable() for line in said.splitlines())


def test_a_refusal_shows_names_escaped(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cp", f"{tree}/in/\x1b[31mmissing", f"{tree}/out"]) == 2
    said = capsys.readouterr().err
    assert r"\x1b[31mmissing" in said
    assert said.count("\n") == 1
    assert said.rstrip("\n").isprintable()


def test_results_complaints_and_logs_show_keys_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = FailedObject(f"s3://a/{EVIL}", f"s3://b/{EVIL}", "not-found", EVIL, 1)
    result = samples.result(
        failed=1, failures=(failure,), warnings=(EVIL,), manifest_uri=f"s3://m/{EVIL}"
    )
    console = Console(is_json=False, is_quiet=False)
    console.print(*result_parts(result))
    console.info(EVIL)
    print_error(EVIL)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    configure_logging(0)
    logging.getLogger("skyplane_orchestration.test").warning("%s is left", EVIL)
    said = capsys.readouterr()
    lines = [*said.out.splitlines(), *said.err.splitlines()]
    assert all(line.isprintable() for line in lines), lines
    assert said.out.count(SHOWN) == 4
    assert "warning: " + SHOWN in said.out
