from __future__ import annotations

import logging

import pytest

from skyplane_orchestration.provision.provisioner import TeardownReport
from skyplane_orchestration.transfer.task_log import log_teardown


def test_the_log_of_a_teardown_tells_what_instances_have_cost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        log_teardown(logging.getLogger("t"), TeardownReport(("a/0",), instance_usd=0.5))
        log_teardown(logging.getLogger("t"), TeardownReport(("a/0", "b/0")))
    assert caplog.messages == [
        "1 gateway ended; its instances have cost $0.5000 since their launch",
        "2 gateways ended",
    ]
