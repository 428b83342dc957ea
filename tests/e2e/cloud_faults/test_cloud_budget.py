"""A run on instances that reaches its budget."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.e2e.cloud_faults.fleets import OBJECTS, Workers
from tests.e2e.cloud_sites import CloudSite
from tests.e2e.held_store import refuse, take

from skyplane_orchestration.errors import BudgetReached, TransferFailed
from skyplane_orchestration.model.job import Policy
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.faults.http_proxy import FaultProxy

    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.status import TransferStatus

pytestmark = [pytest.mark.e2e, pytest.mark.long]

#: More than the first parts of its large objects cost, and less than all its bytes.
USD_PER_GB, BUDGET_USD = 1.0, 0.005


def test_a_transfer_that_reaches_its_budget_goes_on_by_its_handle(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    plan: TransferPlan,
    site: CloudSite,
) -> None:
    """Catalogue of faults, 43. The instances end, and the uploads stay for the resume."""
    dear = replace(plan, edges=tuple(replace(edge, usd_per_gb=USD_PER_GB) for edge in plan.edges))
    job = replace(job, policy=Policy(max_job_usd=BUDGET_USD))

    def lose_the_rest(status: TransferStatus) -> None:
        if status.cost is not None and status.cost.total_usd >= BUDGET_USD:
            refuse(gate)

    with pytest.raises(TransferFailed) as caught:
        workers.client().run(job, plan=dear, on_status=lose_the_rest)
    result = caught.value.result
    assert isinstance(result, TransferResult)
    assert result.error_code == BudgetReached.code
    assert result.cost.total_usd >= BUDGET_USD
    assert site.fake.leftovers() == {}
    take(gate)
    resumed = workers.client("another run").resume(result.resume_handle, max_job_usd=1.0)
    assert (resumed.copied, resumed.failed, resumed.epoch) == (OBJECTS, 0, 2)
    kit.ended_well(job, servers)
