"""A worker that gets a signal at seeded moments leaves nothing in a strict cloud, whatever follows.

Catalogue of faults, 35.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.e2e.cloud_moments import Moment, MomentCopy, copy_at, moments
from tests.e2e.held_store import refuse

from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

INTERRUPTS, KILLS, RETRIES = 271828182, 161803398, 141421356
#: Of gateways whose worker is killed.
LEASE_S: Final = 8.0

CopyAt = Callable[..., AbstractContextManager[MomentCopy]]


@pytest.fixture
def copy_of(
    kit: ClientKit, world: World, servers: tuple[S3Server, S3Server], tmp_path: Path
) -> CopyAt:
    """A copy at a moment, whose buckets are named after what happens to it."""
    return lambda moment, *more: copy_at(moment, kit, world, servers, tmp_path, *more)


@pytest.mark.parametrize("moment", moments(INTERRUPTS), ids=str)
def test_an_interrupted_copy_leaves_nothing(copy_of: CopyAt, moment: Moment) -> None:
    with copy_of(moment, "interrupted") as copy:
        returncode, output, errors = copy.signalled(moment, signal.SIGINT)
        assert "Traceback" not in errors
        copy.require_nothing_left()
        assert (returncode, json.loads(output)["error"]["code"]) == (130, "interrupted"), errors


@pytest.mark.parametrize("moment", moments(KILLS), ids=str)
def test_leases_and_a_sweep_leave_nothing(copy_of: CopyAt, moment: Moment) -> None:
    with copy_of(moment, "killed", LEASE_S) as copy:
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


@pytest.mark.parametrize("moment", moments(RETRIES), ids=str)
def test_the_next_try_uses_what_lives_and_leaves_nothing(
    copy_of: CopyAt, moment: Moment, world: World
) -> None:
    with copy_of(moment, "retried") as copy:
        returncode, _, _ = copy.signalled(moment, signal.SIGKILL)
        assert returncode == -signal.SIGKILL
        report = copy.finish()
        assert report["state"] == "succeeded"
        copy.require_all_copied()
        copy.require_nothing_left()
        if moment.phase != "teardown":
            # None was launched beside another.
            assert len(world.machines) == 2
