"""Ctrl-C at seeded moments of a copy leaves nothing in a strict cloud. Catalogue of faults, 35."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.e2e.cloud_moments import Moment, copy_at, moments

from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SEED: Final = 271828182


@pytest.mark.parametrize("moment", moments(SEED), ids=str)
def test_an_interrupted_copy_leaves_nothing(
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    world: World,
    tmp_path: Path,
    moment: Moment,
) -> None:
    print(f"seed {SEED}, {moment}")
    with copy_at(moment, kit, world, servers, tmp_path, "interrupted") as copy:
        returncode, output, errors = copy.signalled(moment, signal.SIGINT)
        assert "Traceback" not in errors
        copy.require_nothing_left()
        assert (returncode, json.loads(output)["error"]["code"]) == (130, "interrupted"), errors
