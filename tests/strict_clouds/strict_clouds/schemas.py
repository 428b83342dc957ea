"""Requests and answers against what their vendors publish: see `vendor_models`.

`Model` holds one file of `models/`. A violation is a sentence with the place in the document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).with_name("models")
_TYPES: Final[Mapping[str, Any]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
#: Formats of whole numbers that JSON carries as texts.
_LONG: Final = ("int64", "uint64")
_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


class ModelViolation(AssertionError):
    """A request or an answer is not what the vendor's model says."""


class Violations:
    """What a fake has seen that its vendor's model does not have, each once and in order."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def add(self, where: str, found: Iterable[str]) -> None:
        self._found.update(dict.fromkeys(f"{where}: {one}" for one in found))

    def require_none(self) -> None:
        """Raises ModelViolation."""
        if self._found:
            raise ModelViolation("\n".join(self._found))


class Model:
    """The methods and schemas of a service."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.methods: Mapping[str, Mapping[str, Any]] = document["methods"]
        self.parameters = frozenset(document.get("parameters", ()))
        self._schemas: Mapping[str, Mapping[str, Any]] = document["schemas"]

    def query(self, method: str, query: Mapping[str, str]) -> Iterator[str]:
        """Of the parameters in a URL, of a method of Google."""
        known = self.methods[method]["parameters"]
        for name, value in query.items():
            if name not in known and name not in self.parameters:
                yield f"no parameter {name}"
            elif name in known:
                yield from self._text(known[name], value, name)
        for name, told in known.items():
            if told["required"] and told["location"] == "query" and name not in query:
                yield f"parameter {name} is missing"

    def path(self, method: str, path: Mapping[str, str]) -> Iterator[str]:
        """Of the parameters in a path, of a method of Google."""
        for name, value in path.items():
            told = self.methods[method]["parameters"].get(name)
            if told is None:
                yield f"no parameter {name} in the path"
            else:
                yield from self._text(told, value, name)

    def request(self, method: str, body: Any) -> Iterator[str]:
        """Of a body that a client sends."""
        schema = self.methods[method]["request"]
        if schema:
            yield from self._value({"$ref": schema}, body, "", method)
        elif body:
            yield f"{method} takes no body"

    def answer(self, method: str, body: Any) -> Iterator[str]:
        """Of a body that a service answers with."""
        schema = self.methods[method]["response"]
        told: Mapping[str, Any] = {"$ref": schema}
        if schema and self.methods[method].get("isList"):
            rows = {"type": "array", "items": told}
            told = {"properties": {"value": rows, "nextLink": {"type": "string"}}}
        if schema:
            yield from self._value(told, body, "", "")
        elif body:
            yield f"{method} answers without a body"

    def _text(self, told: Mapping[str, Any], text: str, where: str) -> Iterator[str]:
        """Of a value in a URL."""
        kind = told.get("type")
        if kind == "boolean" and text not in ("true", "false"):
            yield f"{where}: {text} is not true or false"
        elif kind == "integer" and not re.fullmatch(r"-?\d+", text):
            yield f"{where}: {text} is no whole number"
        elif kind == "integer":
            yield from _scalar(told, int(text), where)
        elif kind == "string":
            yield from _scalar(told, text, where)

    def _value(
        self, told: Mapping[str, Any], value: Any, where: str, request: str
    ) -> Iterator[str]:
        """Args: `request` is the method of a request, and empty for an answer."""
        if "$ref" in told:
            told = self._schemas[told["$ref"]]
        kind = told.get("type", "object")
        if kind == "any":
            return
        if not isinstance(value, _TYPES[kind]) or isinstance(value, bool) != (kind == "boolean"):
            # Google takes a long number for a text too.
            if not (request and told.get("format") in _LONG and isinstance(value, int)):
                yield f"{where} is {value!r}, and not of the type {kind}"
        elif kind == "array":
            for number, one in enumerate(value):
                yield from self._value(told["items"], one, f"{where}[{number}]", request)
        elif kind == "object":
            yield from self._object(told, value, where, request)
        else:
            yield from _scalar(told, value, where)

    def _object(
        self, told: Mapping[str, Any], value: Mapping[str, Any], where: str, request: str
    ) -> Iterator[str]:
        known = told.get("properties", {})
        others = told.get("additionalProperties")
        for name, one in value.items():
            inside = f"{where}.{name}" if where else name
            if name not in known and others is None:
                if known:
                    yield f"there is no {inside}"
            elif request and known.get(name, {}).get("readOnly"):
                yield f"{inside} is read-only"
            else:
                yield from self._value(known.get(name, others), one, inside, request)
        needed = set(told.get("required", ())) - set(value)
        if request:
            needed |= {
                name
                for name, one in known.items()
                if request in one.get("requiredBy", ()) and name not in value
            }
        for name in sorted(needed):
            yield f"{where}.{name} is missing" if where else f"{name} is missing"


def _scalar(told: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    if "enum" in told and value not in told["enum"]:
        yield f"{where}: {value!r} is none of {', '.join(map(str, told['enum'][:12]))}"
    if "pattern" in told and not re.fullmatch(told["pattern"], value):
        yield f"{where}: {value!r} does not match {told['pattern']}"
    if "minimum" in told and float(value) < float(told["minimum"]):
        yield f"{where}: {value} is less than {told['minimum']}"
    if "maximum" in told and float(value) > float(told["maximum"]):
        yield f"{where}: {value} is more than {told['maximum']}"
    if told.get("format") in _LONG and isinstance(value, str) and not value.isdecimal():
        yield f"{where}: {value!r} is no whole number"
    if told.get("format") == "date-time" and not _DATE_TIME.fullmatch(value):
        yield f"{where}: {value!r} is no time"


@cache
def model(name: str) -> Model:
    """`compute`, `storage` or `arm`."""
    return Model(json.loads((_FOLDER / f"{name}.json").read_text()))
