"""The plan that a fleet runs in place of a refused one, as its gateways keep it.

Tags have no room for a plan. A worker that is killed right after it has planned again leaves no
document, and the next one comes with the plan that was refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from skyplane_orchestration.errors import GatewayUnreachable, NotAuthorised, SkyplaneError
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.provision.control_sessions import ControlSessions
from skyplane_orchestration.provision.fleet.machines import Instance, control_port

log = logging.getLogger(__name__)


def keep_plan(
    plan: TransferPlan, handles: Iterable[GatewayHandle], sessions: ControlSessions
) -> None:
    """Have the gateways at both ends keep a plan that came in place of a refused one."""
    if not plan.replaces:
        return
    document = plan.to_dict()
    for handle in handles:
        if handle.region not in plan.ends:
            continue
        try:
            sessions.get(handle.node, handle.control).put_plan(document)
        except NotAuthorised:
            raise
        except SkyplaneError as error:  # Such as a gateway of the previous release.
            log.warning("%s did not store the plan of its fleet: %s", handle.node, error)


def plan_that_runs(
    plan: TransferPlan, instances: Iterable[Instance], sessions: ControlSessions
) -> TransferPlan:
    """The plan that these instances run in place of this one; this one if they run no such plan.

    Raises NotAuthorised.
    """
    for instance in instances:
        if not (instance.is_alive and instance.address and instance.key_id):
            continue
        node, address = instance.nodes[0], (instance.address, control_port(0))
        try:
            document = sessions.get(node, address).plan()
            found = TransferPlan.from_dict(document) if document else plan
        except NotAuthorised:
            raise
        except GatewayUnreachable as error:
            log.debug("cannot ask %s for the plan of its fleet: %s", node, error)
            sessions.drop(node)
            continue
        except SkyplaneError as error:
            log.info("cannot ask %s for the plan of its fleet: %s", node, error)
            continue
        if found.replaces == plan.shape:
            log.info("the fleet runs another plan, since this one was refused: %s", found.in_words)
            return found
    return plan
