"""The clouds that the conformance suite runs against.

To join: write a `CloudHarness` and add its context manager to `_HARNESSES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

import pytest
from tests.provision.aws.harness import aws_harness
from tests.provision.instances.cloud_harness import CloudHarness

_HARNESSES: Final[dict[str, Callable[[], AbstractContextManager[CloudHarness]]]] = {
    "aws": aws_harness,
}


@pytest.fixture(params=sorted(_HARNESSES))
def harness(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CloudHarness]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strict")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "strict")
    with _HARNESSES[request.param]() as made:
        yield made
