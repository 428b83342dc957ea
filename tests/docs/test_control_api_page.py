"""docs/reference/control-api.md names exactly the calls that a gateway answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from skyplane_gateway.control_server.calls import ControlCalls

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "control-api.md"


def test_the_page_lists_every_call_and_no_other() -> None:
    answered = set(ControlCalls(cast(Any, None)).table)
    written = set(re.findall(r"^\| `([A-Z]+) (/v1\S*)` \|", PAGE.read_text(), re.MULTILINE))
    assert written == answered
