"""The limit of living fleets of a deployment."""

from __future__ import annotations

import logging

from skyplane_orchestration.errors import TooManyFleets
from skyplane_orchestration.provision.provisioner import Provisioner

log = logging.getLogger(__name__)


def require_room(
    provisioner: Provisioner, deployment: str, fleet_key: str, max_active_fleets: int | None
) -> None:
    """Check that a fleet may start beside the living fleets of its deployment, or lives already.

    The count is that of a sweep: a fleet lives from its first resource to its last gateway. Two
    calls at the same time count the same fleets, so the caller needs a lock for an exact limit.

    Raises TooManyFleets.
    """
    if max_active_fleets is None:
        return
    report = provisioner.sweep(deployment, dry_run=True)
    for fleet in report.orphans:
        if not fleet.key:
            log.warning("max_active_fleets counts without some fleets: %s", fleet.error)
    living = report.kept
    if fleet_key not in living and len(living) >= max_active_fleets:
        raise TooManyFleets.of(deployment, max_active_fleets, living)
