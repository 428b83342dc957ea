"""Errors name the options of the command, and leave all other words as they are."""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import skyplane_gateway
import skyplane_orchestration
from skyplane_gateway.common.wording import argument
from skyplane_orchestration.cli.main import build_parser, main
from skyplane_orchestration.cli.option_names_in_messages import with_option_names

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Arguments of the library without an option.
_OF_PYTHON = {
    *("gateway_settings", "max_active_fleets", "clouds", "hosts"),
}


@pytest.mark.parametrize(
    "key", ["my encrypt notes.txt", "my max_delete notes.txt", "a bwlimit b", "use allow_empty"]
)
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
        ("verify", "none", "--no-verify"),
        ("recursive", True, "-r"),
        ("max_relays", None, "--relays"),
        ("publish_last", None, "--last"),
        ("clouds_file", None, "--clouds"),
        ("source_url", None, "SRC"),
        ("destination_endpoint", None, "--dst-endpoint"),
        ("source_credential_ref", None, "--src-credentials"),
        ("source_read_gbps", None, "--source-read-gbps"),
        ("conflict", None, "--conflict"),
        ("no_such_argument", None, "no_such_argument"),
    ],
)
def test_an_argument_is_named_by_its_option(name: str, value: object, option: str) -> None:
    options = build_parser("cp").parse_args(["cp", "a", "b"])
    assert with_option_names("give " + argument(name, value), options) == f"give {option}"


def _named() -> Iterator[str]:
    """All arguments that messages name by a literal."""
    for package in (skyplane_gateway, skyplane_orchestration):
        for path in Path(package.__path__[0]).rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if "argument(" in text else ():
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id == "argument"
                    and isinstance(node.args[0], ast.Constant)
                ):
                    yield str(node.args[0].value)


def test_every_argument_in_a_message_has_an_option() -> None:
    parsers = [
        build_parser(name).parse_args(words.split()).parser
        for name, words in (("cp", "cp a b"), ("sync", "sync a b"), ("plan", "plan a b"))
    ]
    for name in sorted(set(_named()) - _OF_PYTHON):
        texts = [
            with_option_names(argument(name), argparse.Namespace(parser=one)) for one in parsers
        ]
        assert any(text != name for text in texts), name
