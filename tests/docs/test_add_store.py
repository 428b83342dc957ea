"""The places that a new store touches, as the page about the architecture names them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

ROOT = DOCS.parent
PACKAGES = (ROOT / "gateway/skyplane_gateway", ROOT / "src/skyplane_orchestration")
PAGE = (DOCS / "explanation/architecture.md").read_text(encoding="utf-8")
PLACES = re.findall(
    r"^\d\. `([^`]+)`", PAGE.partition("**A new store**")[2].partition("\n\nA store")[0], re.M
)


def test_there_are_eight() -> None:
    assert len(PLACES) == 8


@pytest.mark.parametrize("kind", ["azure", "gcs"])
@pytest.mark.parametrize("place", PLACES)
def test_each_place_knows_each_store(place: str, kind: str) -> None:
    """S3 is what is meant where no kind is named."""
    (path,) = [
        Path(package, place.replace("<kind>", kind))
        for package in PACKAGES
        if (package / place.replace("<kind>", kind)).exists()
    ]
    assert path.is_dir() or re.search(rf'"{kind}"|_{kind}\b', path.read_text(encoding="utf-8"))
