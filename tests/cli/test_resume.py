"""`skyplane-orch resume`: where the handle is found, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.cli.verbs.resume import _text_of
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.resuming import PREFIX


def test_the_handle_is_found_wherever_it_stands(tmp_path: Path) -> None:
    word = PREFIX + "abc"
    assert _text_of(word) == word
    file = tmp_path / "handle"
    for text in (
        f"{word}\n",
        json.dumps({"resume_handle": word}),
        json.dumps({"error": {}, "result": {"resume_handle": word}}),
    ):
        file.write_text(text)
        assert _text_of(str(file)) == word
    for text in (json.dumps({"resume_handle": ""}), "{", json.dumps({"result": []})):
        file.write_text(text)
        with pytest.raises(ConfigurationInvalid):
            _text_of(str(file))


@pytest.mark.parametrize("handle", ["nowhere", PREFIX + "abc", "-"])
def test_what_is_no_handle_is_bad_input(
    handle: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.StringIO("nothing of the kind"))
    assert main(["resume", handle]) == 2
    captured = capsys.readouterr()
    assert "resume handle" in captured.err
    assert captured.out == ""
