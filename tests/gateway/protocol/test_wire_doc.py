"""docs/internals/wire-protocol.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from skyplane_gateway.protocol import limits
from skyplane_gateway.protocol.messages import MessageType
from skyplane_gateway.protocol.reasons import GoodbyeReason

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "internals" / "wire-protocol.md").read_text()


def test_limits_are_those_of_the_code() -> None:
    written = {name: int(value) for name, value in re.findall(r"\| `(MAX_\w+)` \| (\d+) \|", PAGE)}
    assert written == {
        name: value for name, value in vars(limits).items() if name.startswith("MAX_")
    }


def test_numbers_of_types_and_reasons_are_those_of_the_code() -> None:
    for kind in MessageType:
        assert f"{kind.value} {kind.name}" in PAGE
    for reason in GoodbyeReason:
        assert f"{reason.value} {reason.name.lower().replace('_', ' ')}" in PAGE.replace("\n", " ")
