"""Messages with fields: joined, told in other words, and carried to other processes."""

from __future__ import annotations

import ast
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import skyplane_gateway
import skyplane_orchestration
from skyplane_gateway.common.errors import ConfigurationInvalid, from_dict
from skyplane_gateway.common.wording import FieldName, Text, in_words_of, with_fields, with_parts

MESSAGE = with_fields(
    "leave out {verify:'none'} or {notes!r} ({size:.1f} {{}}); {move}", notes="{verify}", size=2
)


def upper(field: FieldName) -> str:
    return f"<{field.name.upper()}:{field.value}>" if field.value else f"<{field.name.upper()}>"


def test_only_fields_get_other_names() -> None:
    assert MESSAGE == "leave out verify='none' or '{verify}' (2.0 {}); move"
    shown = "leave out <VERIFY:'none'> or '{verify}' (2.0 {}); <MOVE>"
    assert in_words_of(MESSAGE, upper) == shown
    assert in_words_of("move", upper) == "move"


def test_texts_are_joined_with_their_fields() -> None:
    text = "a " + Text(FieldName("x"), ", ", with_fields("{y}")) + ", {z}."
    assert (text, in_words_of(text, upper)) == ("a x, y, {z}.", "a <X>, <Y>, {z}.")
    text = with_fields("{a} of {b}", a=text, b=FieldName("z", shown="the z"))
    assert in_words_of(text, upper) == "a <X>, <Y>, {z}. of <Z>"
    assert ConfigurationInvalid(text).fields == ("x", "y", "z")


def test_fields_survive_the_way_to_another_process() -> None:
    error = ConfigurationInvalid(MESSAGE)
    again = from_dict(json.loads(json.dumps(error.to_dict())))
    assert again.fields == pickle.loads(pickle.dumps(error)).fields == ("verify", "move")
    for found in (again.message, pickle.loads(pickle.dumps(MESSAGE))):
        assert in_words_of(found, upper) == in_words_of(MESSAGE, upper)
    assert "parts" not in ConfigurationInvalid("plain").to_dict()
    assert json.dumps(MESSAGE) == json.dumps(str(MESSAGE))


@pytest.mark.parametrize(
    "parts", [None, 3, "ab", [3], [["a", "b", "c", "d"]], [["text"], "!"], [[]]]
)
def test_broken_parts_of_a_document_are_left_out(parts: object) -> None:
    assert in_words_of(with_parts("text", parts), upper) == "text"


def calls_with_fields() -> Iterator[tuple[str, ast.Call, set[str]]]:
    """All calls with a template or the name of a field: place, call, and the names in a literal."""
    for package in (skyplane_gateway, skyplane_orchestration):
        for path in Path(package.__path__[0]).rglob("*.py"):
            text = path.read_text()
            has_some = any(one in text for one in ("with_fields(", ".about(", "FieldName("))
            for node in ast.walk(ast.parse(text)) if has_some else ():
                function = getattr(node, "func", None)
                kind = getattr(function, "id", "") or getattr(function, "attr", "")
                if isinstance(node, ast.Call) and kind in ("with_fields", "about", "FieldName"):
                    first = node.args[0]
                    literal = str(first.value) if isinstance(first, ast.Constant) else ""
                    places = {name for _, name, _, _ in Formatter().parse(literal) if name}
                    of_field = {literal} - {""}
                    yield f"{path}:{node.lineno}", node, of_field if kind[0] == "F" else places


def test_templates_hold_no_values_and_use_all_that_are_given() -> None:
    for where, call, places in calls_with_fields():
        is_name = getattr(call.func, "id", "") == "FieldName"
        parts = [] if is_name else ast.walk(call.args[0])
        assert not any(isinstance(one, ast.JoinedStr) for one in parts), where
        if isinstance(call.args[0], ast.Constant):
            assert {one.arg for one in call.keywords} <= places | {"shown"}, where
