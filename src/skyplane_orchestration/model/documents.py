"""Turns the values of this package into plain JSON data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def document_of(value: Any, schema_version: int | None = None) -> dict[str, Any]:
    """The fields of a dataclass, in their order, as dicts and lists; the schema version first.

    Tuples become lists: XCom would wrap them.
    """
    head = {} if schema_version is None else {"schema_version": schema_version}
    return {**head, **{row.name: _plain(getattr(value, row.name)) for row in fields(value)}}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return document_of(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
