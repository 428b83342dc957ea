"""Messages with marked arguments: joined, told in other words, and carried to other processes."""

from __future__ import annotations

import ast
import json
import pickle
from pathlib import Path

import pytest

import skyplane_gateway
import skyplane_orchestration
from skyplane_gateway.common.errors import ConfigurationInvalid, from_dict
from skyplane_gateway.common.wording import Mark, Text, argument, in_words_of, joined, marked

MESSAGE = "leave out " + argument("verify", "none") + " or 'verify notes'; " + argument("move")


def upper(mark: Mark, shown: str) -> str:
    return f"<{mark.name.upper()}>" if mark.value is None else f"<{mark.name}:{mark.value}>"


def test_only_marked_words_get_other_names() -> None:
    assert MESSAGE == "leave out verify='none' or 'verify notes'; move"
    assert in_words_of(MESSAGE, upper) == "leave out <verify:none> or 'verify notes'; <MOVE>"
    assert in_words_of("move", upper) == "move"


def test_texts_are_joined_with_their_places() -> None:
    text = "a " + joined(", ", [argument("x"), "y", argument("z", shown="the z")]) + "."
    assert (text, in_words_of(text, upper)) == ("a x, y, the z.", "a <X>, y, <Z>.")


def test_places_survive_the_way_to_another_process() -> None:
    error = ConfigurationInvalid(MESSAGE)
    again = from_dict(json.loads(json.dumps(error.to_dict())))
    for found in (again.message, pickle.loads(pickle.dumps(MESSAGE))):
        assert in_words_of(found, upper) == in_words_of(MESSAGE, upper)
    assert "arguments" not in ConfigurationInvalid("plain").to_dict()


@pytest.mark.parametrize(
    "places",
    [None, 3, "ab", [3], [[0, 1]], [[-1, 1, "a", None]], [[0, 9, "a", 1]], [["0", 1, "a", 1]]],
)
def test_broken_places_of_a_document_are_left_out(places: object) -> None:
    assert in_words_of(marked("text", places), upper) == "text"


def test_no_argument_stands_in_an_f_string_which_would_drop_its_place() -> None:
    for package in (skyplane_gateway, skyplane_orchestration):
        for path in Path(package.__path__[0]).rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if "{argument(" in text else ():
                if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Call):
                    function = node.value.func
                    is_argument = isinstance(function, ast.Name) and function.id == "argument"
                    assert not is_argument, f"{path}:{node.lineno}"


def test_a_text_is_a_string() -> None:
    assert isinstance(MESSAGE, Text)
    assert json.dumps(MESSAGE) == json.dumps(str(MESSAGE))
