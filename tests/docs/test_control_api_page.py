"""docs/reference/control-api.md names exactly the calls that a gateway answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from skyplane_gateway.control.server import ControlServer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "control-api.md"


def test_the_page_lists_every_call_and_no_other() -> None:
    application = ControlServer(cast(Any, None)).application()
    answered = {
        (route.method, route.resource.canonical)
        for route in application.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    written = set(re.findall(r"^\| `([A-Z]+) (/v1\S*)` \|", PAGE.read_text(), re.MULTILINE))
    assert written == answered
