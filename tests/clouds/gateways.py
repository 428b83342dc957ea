"""What this project gives the strict fakes: the gateways that their machines run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from skyplane_orchestration.provision.fleet.user_data import BootSettings
from strict_clouds.firewall import WideRule
from strict_clouds.world import Program, World

_REPOSITORY: Final = Path(__file__).parents[2]


#: What machines boot: a container, or the software that the orchestrator sends.
IMAGE: Final = BootSettings(image="registry.example/skyplane-gateway@sha256:" + "ab" * 32)
PUSH: Final = BootSettings()


def settings_here(**more: Any) -> dict[str, Any]:
    """A clouds file whose workers are on the loopback interface, and look often."""
    return {"control_cidrs": ["127.0.0.1/32"], "poll_s": 0.2, **more}


#: What runs in their place: the gateway of the source tree.
GATEWAY: Final = Program(
    command=(sys.executable, "-m", "skyplane_gateway"),
    image=IMAGE.image,
    module="skyplane_gateway",
    environment={"PYTHONPATH": str(_REPOSITORY / "gateway")},
)


def needless_rules(world: World) -> tuple[WideRule, ...]:
    """Those of `World.wide_rules` that no fleet needs.

    Any source may become the lead, and only the lead calls control ports. So a machine may
    leave unused ports open to another one, if the orchestrator has called these ports.
    """
    machines = {machine.address: machine.firewall for machine in world.machines}
    found = []
    for wide in world.wide_rules():
        called = {port for peer, port in machines[wide.address].connections if peer not in machines}
        used = {port for _, port in wide.used_by}
        is_open = set(range(wide.rule.first_port, wide.rule.last_port + 1))
        is_from_machine = wide.rule.source_cidr.removesuffix("/32") in machines
        if not is_from_machine or not is_open - used <= called:
            found.append(wide)
    return tuple(found)
