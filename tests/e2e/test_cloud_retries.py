"""A worker that is killed at seeded moments: the next try uses its instances and ends its copy.

Catalogue of faults, 35.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.e2e.cloud_moments import Moment, copy_at, moments

from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SEED: Final = 141421356


@pytest.mark.parametrize("moment", moments(SEED), ids=str)
def test_the_next_try_uses_what_lives_and_leaves_nothing(
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    world: World,
    tmp_path: Path,
    moment: Moment,
) -> None:
    print(f"seed {SEED}, {moment}")
    with copy_at(moment, kit, world, servers, tmp_path, "retried") as copy:
        returncode, _, _ = copy.signalled(moment, signal.SIGKILL)
        assert returncode == -signal.SIGKILL
        report = copy.finish()
        assert report["state"] == "succeeded"
        copy.require_all_copied()
        copy.require_nothing_left()
        if moment.phase != "teardown":
            # None was launched beside another.
            assert len(world.machines) == 2
