"""The Python of docs/how-to/files.md and notebook.md runs, on files of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.docs.pages import Page

FILES: Final = Page("docs/how-to/files.md")
NOTEBOOK: Final = Page("docs/how-to/notebook.md")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("bucket", "source"):
        (tmp_path / name / "tables").mkdir(parents=True)
    parquet.write_table(pa.table({"id": [1, 2]}), tmp_path / "source/tables/a.parquet")
    return tmp_path


def run(page: Page, name: str, folder: Path) -> dict[str, Any]:
    """The names that a block leaves, with folders in place of its buckets."""
    (text,) = page.tested(name)
    names: dict[str, Any] = {}
    exec(text.replace("s3://", f"file://{folder}/"), names)
    return names


def test_a_result_opens_a_copy_and_pyarrow_reads_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(FILES, "open", folder)["result"].copied == 1
    assert "PAR1" in capsys.readouterr().out
    assert run(FILES, "fsspec", folder)["table"].to_pydict() == {"id": [1, 2]}


def test_a_notebook_shows_a_plan() -> None:
    (text,) = NOTEBOOK.tested("plan")
    names: dict[str, Any] = {}
    exec(text, names)
    assert "<svg" in names["plan"]._repr_html_()
