"""A strict EC2 for the tests of AWS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.provision.aws.harness import AwsHarness, aws_harness


@pytest.fixture
def harness() -> Iterator[AwsHarness]:
    with aws_harness() as made:
        yield made
