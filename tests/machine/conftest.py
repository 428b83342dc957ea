"""Clients whose instances are emulated machines, and stores that these reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.conftest import (
    DESTINATION_REGION,
    SOURCE_REGION,
    S3Server,
    home,
    image,
    kit,
    serving,
)
from tests.machine.guests import Guests, add_address, delete_address, emulated

__all__ = ["home", "image", "kit"]

#: No test has so many guests.
_STORES: int = 250


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3Server, S3Server]]:
    """Source and destination, as in tests/e2e, on an address that guests reach too."""
    one, other = (tmp_path_factory.mktemp(end) for end in ("source", "destination"))
    host = add_address(_STORES)
    try:
        with (
            serving(SOURCE_REGION, one, host) as source,
            serving(DESTINATION_REGION, other, host) as destination,
        ):
            yield source, destination
    finally:
        delete_address(host)


@pytest.fixture
def guests(tmp_path: Path) -> Iterator[Guests]:
    with emulated(tmp_path / "guests") as made:
        yield made
