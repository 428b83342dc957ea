"""A strict Compute Engine for the tests of Google Cloud."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.provision.gcp.harness import GcpHarness, gcp_harness


@pytest.fixture
def harness() -> Iterator[GcpHarness]:
    with gcp_harness() as made:
        yield made
