from __future__ import annotations

from dataclasses import replace

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.status import empty_status
from skyplane_orchestration.transfer.credential_renewal import RenewalWatch

QUIET = empty_status("ab" * 16, 1)
ASKING = replace(QUIET, needs_credentials=("source",))


def test_it_looks_at_once_when_the_lead_asks_and_else_now_and_then() -> None:
    now_s, looks = 0.0, list[float]()
    watch = RenewalWatch(lambda: looks.append(now_s), lambda: now_s)
    for second in range(100):
        now_s = float(second)
        watch.poll(ASKING if 40 <= second < 80 else QUIET)
    assert looks == [30.0, 40.0, 70.0]


@pytest.mark.parametrize("kind", [ConfigurationInvalid, ConnectionError])
def test_what_cannot_be_renewed_now_is_tried_again(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """A resolver may ask another service, which raises errors of its own."""
    now_s, looks = 0.0, list[float]()

    def renew() -> None:
        looks.append(now_s)
        raise kind("there is no connection 'conn'")

    watch = RenewalWatch(renew, lambda: now_s)
    for second in range(40):
        now_s = float(second)
        watch.poll(ASKING)
    assert looks == [0.0, 30.0]
    assert "no connection 'conn'" in caplog.text
