"""Errors name the options of the command, and leave all other words as they are."""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING

import pytest

import skyplane_gateway
import skyplane_orchestration
from skyplane_gateway.common.wording import FieldName, Text
from skyplane_orchestration.cli.main import build_parser, main
from skyplane_orchestration.cli.option_names_in_messages import with_option_names

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Arguments of the library without an option.
_OF_PYTHON = {
    *("gateway_settings", "max_active_fleets", "clouds", "hosts"),
}


@pytest.mark.parametrize("key", ["my encrypt notes.txt", "use {allow_empty} or {0}"])
def test_words_of_a_key_are_no_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    assert main(["cp", f"{tmp_path}/{key}", f"{tmp_path}/new"]) == 2
    assert f"{tmp_path}/{key}; check" in capsys.readouterr().err
    assert main(["cp", f"{tmp_path}/{key}", f"{tmp_path}/new", "--json"]) == 2
    assert f"{tmp_path}/{key}; check" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize(
    ("name", "value", "option"),
    [
        ("verify", "'none'", "--no-verify"),
        ("recursive", "True", "-r"),
        ("max_relays", "", "--relays"),
        ("publish_last", "", "--last"),
        ("clouds_file", "", "--clouds"),
        ("source_url", "", "SRC"),
        ("destination_endpoint", "", "--dst-endpoint"),
        ("source_credential_ref", "", "--src-credentials"),
        ("source_read_gbps", "", "--source-read-gbps"),
        ("conflict", "", "--conflict"),
        ("no_such_argument", "", "no_such_argument"),
    ],
)
def test_an_argument_is_named_by_its_option(name: str, value: str, option: str) -> None:
    options = build_parser("cp").parse_args(["cp", "a", "b"])
    assert with_option_names(Text("give ", FieldName(name, value)), options) == f"give {option}"


def _named() -> Iterator[str]:
    """All fields that messages name by a literal."""
    for package in (skyplane_gateway, skyplane_orchestration):
        for path in Path(package.__path__[0]).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                function = getattr(node, "func", None)
                kind = getattr(function, "id", "") or getattr(function, "attr", "")
                if not isinstance(node, ast.Call) or not node.args:
                    continue
                first = getattr(node.args[0], "value", None)
                if kind == "FieldName" and isinstance(first, str):
                    yield first
                if kind in ("with_fields", "about") and isinstance(first, str):
                    places = {name for _, name, _, _ in Formatter().parse(first) if name}
                    yield from places - {one.arg for one in node.keywords}


def test_every_argument_in_a_message_has_an_option() -> None:
    parsers = [
        build_parser(name).parse_args(words.split()).parser
        for name, words in (("cp", "cp a b"), ("sync", "sync a b"), ("plan", "plan a b"))
    ]
    for name in sorted(set(_named()) - _OF_PYTHON):
        texts = [
            with_option_names(Text(FieldName(name)), argparse.Namespace(parser=one))
            for one in parsers
        ]
        assert any(text != name for text in texts), name
