"""Documents that users and other programs hand over have limits."""

from __future__ import annotations

import json

import pytest
import yaml

from skyplane_gateway.common import schema
from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.schema import MAX_DEPTH, parsed


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
@pytest.mark.parametrize("kind", ["list", "object"])
@pytest.mark.parametrize("load", [json.loads, yaml.safe_load])
def test_a_deep_document_is_refused(depth: int, kind: str, load: object) -> None:
    if load is yaml.safe_load and depth == 100_000:
        depth = 2_000
    opening, closing = ("[", "]") if kind == "list" else ('{"a":', "}")
    text = opening * depth + "1" + closing * depth
    with pytest.raises(ConfigurationInvalid, match=r"^the plan is nested deeper than 64 levels$"):
        parsed(text, "the plan", load)  # type: ignore[arg-type]


def test_the_deepest_document() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parsed(text, "it") == json.loads(text)
    assert parsed(text.encode(), "it") == json.loads(text)


def test_a_large_document_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationInvalid, match="it is larger than 1 MiB"):
        parsed(" " * (1 << 20) + "1", "it", most_bytes=1 << 20)
    monkeypatch.setattr(schema, "MAX_CONTAINERS", 3)
    with pytest.raises(ConfigurationInvalid, match="it is too large"):
        parsed("[[], [], []]", "it")


def test_references_that_repeat_a_part_without_end() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(ConfigurationInvalid, match="too large"):
        parsed("\n".join(lines), "it", yaml.safe_load)
    with pytest.raises(ConfigurationInvalid, match="nested deeper"):
        parsed("&a [*a]", "it", yaml.safe_load)


@pytest.mark.parametrize("text", ["", "{", "nan,", "\x00"])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="it is not JSON"):
        parsed(text, "it")
