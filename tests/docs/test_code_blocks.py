"""The code blocks of all pages: Python imports, commands parse, JSON is JSON."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.docs.pages import all_pages

from skyplane_orchestration.cli.main import build_parser

PAGES: Final = all_pages()
_COMMAND: Final = "skyplane-orch"
#: Where a command ends in a line of the shell.
_ENDS: Final = re.compile(r"\s(?:\|\|?|&&|;|>)(?:\s|$)")


def of_language(*languages: str) -> list[Any]:
    return [
        pytest.param(block.text, id=f"{page.path}-{number}")
        for page in PAGES
        for number, block in enumerate(page.blocks())
        if block.language in languages
    ]


def commands() -> list[Any]:
    return [
        pytest.param(line, id=f"{page.path}: {line}")
        for page in PAGES
        for block in page.blocks()
        if block.language in ("", "bash")
        for line in _commands_of(block.text)
    ]


def _commands_of(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        for part in _ENDS.split(line.strip()):
            if part.startswith(f"{_COMMAND} "):
                yield part


@pytest.mark.parametrize("text", of_language("python"))
def test_python_compiles_and_its_imports_resolve(text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module} has no {name.name}"


@pytest.mark.parametrize("line", commands())
def test_commands_parse(line: str) -> None:
    build_parser().parse_args(shlex.split(line)[1:])


def test_commands_in_a_sentence_have_verbs_that_exist() -> None:
    for page in PAGES:
        for verb in re.findall(rf"`{_COMMAND} ([a-z]+)", page.prose):
            with pytest.raises(SystemExit, match="0"):
                build_parser().parse_args([verb, "--help"])


@pytest.mark.parametrize("text", of_language("json"))
def test_json_is_json(text: str) -> None:
    json.loads(text)


def test_bash_takes_the_syntax_of_every_shell_block() -> None:
    script = "\n".join(
        block.text for page in PAGES for block in page.blocks() if block.language == "bash"
    )
    checked = subprocess.run(
        ["bash", "-n"], input=script, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_every_fenced_block_says_its_language() -> None:
    known = {"bash", "python", "json", "text", "yaml"}
    for page in PAGES:
        fences = re.findall(r"^( *)```(\w*)$", page.text, re.MULTILINE)
        assert {language for _, language in fences[::2]} <= known, page.path
        # The site takes a block for a part of a list item from four spaces on.
        assert {len(indent) % 4 for indent, _ in fences} <= {0}, page.path
