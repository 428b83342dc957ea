"""A strict Resource Manager for the tests of Azure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.provision.azure.harness import AzureHarness, azure_harness


@pytest.fixture
def harness() -> Iterator[AzureHarness]:
    with azure_harness() as made:
        yield made
