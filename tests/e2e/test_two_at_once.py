"""Two orchestrators of one key at once, and a teardown in the middle of a transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.e2e.held_store import LAST, OBJECTS, PATIENCE_S, HeldStore

from skyplane_orchestration.errors import TransferFailed
from skyplane_orchestration.model.job import TransferJob

if TYPE_CHECKING:
    from tests.e2e.beside import Beside
    from tests.e2e.conftest import ClientKit

    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.model.status import TransferStatus

pytestmark = pytest.mark.e2e


@pytest.fixture
def plan(kit: ClientKit) -> TransferPlan:
    return kit.plan((kit.SOURCE, kit.SINK))


def test_a_teardown_in_mid_transfer_leaves_no_upload_and_no_journal(
    kit: ClientKit, held: HeldStore, held_job: TransferJob, plan: TransferPlan, beside: Beside
) -> None:
    client = kit.client()
    fleet = client.provision(plan)
    running = beside.start(lambda: client.transfer(held_job, fleet))
    held.wait_until_half_way()
    assert held.open_uploads() != []
    held.refuse()
    kit.client().teardown(fleet)
    error = running.exception(PATIENCE_S)
    assert isinstance(error, TransferFailed)
    assert kit.home.traces() == []
    assert held.open_uploads() == []
    assert held.keys() < set(OBJECTS) - {LAST}


def test_interrupted_when_no_gateway_is_left(
    kit: ClientKit, held: HeldStore, held_job: TransferJob, plan: TransferPlan
) -> None:
    """The client itself removes uploads and journal then."""
    fleets: list[Fleet] = []

    def interrupt(status: TransferStatus) -> None:
        if held.held() and held.open_uploads():
            kit.kill(fleets[0])
            held.refuse()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kit.client().run(held_job, plan=plan, on_fleet=fleets.append, on_status=interrupt)
    assert kit.home.traces() == []
    keys = held.keys()
    assert [key for key in keys if ".skyplane" in key] + held.open_uploads() == []
