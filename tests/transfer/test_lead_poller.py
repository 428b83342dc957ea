from __future__ import annotations

from dataclasses import replace

import pytest

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.status import empty_status
from skyplane_orchestration.transfer.lead_poller import CredentialRenewal

QUIET = empty_status("ab" * 16, 1)
ASKING = replace(QUIET, needs_credentials=("source",))


def test_it_renews_at_once_when_the_lead_asks_and_else_at_intervals() -> None:
    now_s, renewals = 0.0, list[float]()

    def renew() -> None:
        renewals.append(now_s)

    renewal = CredentialRenewal(Clock(lambda: now_s))
    for second in range(100):
        now_s = float(second)
        renewal.poll(ASKING if 40 <= second < 80 else QUIET, renew)
    assert renewals == [30.0, 40.0, 70.0]


@pytest.mark.parametrize("kind", [ConfigurationInvalid, ConnectionError])
def test_credentials_that_cannot_be_had_are_tried_again(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """A resolver may ask another service, which raises errors of its own."""
    now_s, renewals = 0.0, list[float]()

    def renew() -> None:
        renewals.append(now_s)
        raise kind("there is no connection 'conn'")

    renewal = CredentialRenewal(Clock(lambda: now_s))
    for second in range(40):
        now_s = float(second)
        renewal.poll(ASKING, renew)
    assert renewals == [0.0, 30.0]
    assert "no connection 'conn'" in caplog.text
