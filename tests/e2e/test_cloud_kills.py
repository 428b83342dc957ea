"""A worker that is killed at seeded moments: leases and a sweep leave nothing in a strict cloud.

Catalogue of faults, 35.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.e2e.cloud_moments import Moment, copy_at, moments
from tests.e2e.held_store import refuse

from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SEED: Final = 161803398
#: Of gateways whose worker is killed.
LEASE_S: Final = 8.0


@pytest.mark.parametrize("moment", moments(SEED), ids=str)
def test_leases_and_a_sweep_leave_nothing(
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    world: World,
    tmp_path: Path,
    moment: Moment,
) -> None:
    print(f"seed {SEED}, {moment}")
    with copy_at(moment, kit, world, servers, tmp_path, "killed", LEASE_S) as copy:
        returncode, _, _ = copy.signalled(moment, signal.SIGKILL)
        assert returncode == -signal.SIGKILL
        if moment.phase == "transfer":
            assert len(copy.running()) == 2
            refuse(copy.proxy)
            copy.wait_for_the_end_of_all_machines()
        copy.sweep()
        copy.require_nothing_left()
        if moment.phase == "teardown":
            copy.require_all_copied()
