"""One transfer by a fleet of its own, with kills: a client that is a process, and the outcome."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.survival.stage import ClientProcess, Killer, KillPoint, Proxy

from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import TransferPlan

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

#: What is under way when a process dies is a small part of the data, and silence is noticed.
GATEWAY_SETTINGS: Final = {"ack_deadline_s": 15.0, "assembly_mib": 32, "store_threads": 8}

_CREDENTIALS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_KEY")


@dataclass(frozen=True)
class Scene:
    """A transfer to be disturbed.

    Attributes:
        name: no two scenes of a test share it.
        seed: decides which of several gateways is hit.
        proxy: before the destination.
        folder: gets logs.
    """

    name: str
    seed: int
    plan: TransferPlan
    job: TransferJob
    points: Sequence[KillPoint]
    proxy: Proxy
    folder: Path


@dataclass(frozen=True)
class Outcome:
    """An ended run: its result and the killed processes."""

    result: Mapping[str, Any]
    killer: Killer
    client: ClientProcess

    def __str__(self) -> str:
        seen = self.client.seen
        lines = [
            *map(str, self.killer.done),
            f"  epochs {[epoch for epoch, _ in seen.epochs]}, {seen.clients} clients",
            *(f"  warning: {text}" for text in self.result["warnings"]),
        ]
        return "\n".join(lines)


def run(kit: ClientKit, scene: Scene) -> Outcome:
    """Transfer with kills, then tear down."""
    folder = scene.folder
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    words = ("tests", scene.name, f"seed-{scene.seed}")
    provisioner = {"max_instances_per_region": 3, "gateway_settings": GATEWAY_SETTINGS}
    orchestrator = kit.client(
        identity=RunIdentity(*words), provisioner=kit.provisioner(**provisioner)
    )
    fleet = orchestrator.provision(scene.plan)
    document = {
        "run_root": str(kit.home.run_root),
        "identity": words,
        "secret": kit.secret.value.decode(),
        "provisioner": provisioner,
        "poll_s": 0.2,
        "job": scene.job.to_dict(),
        "fleet": fleet.to_dict(),
    }
    client = ClientProcess(document, _environment(kit, scratch), folder / "client.log")
    try:
        client.start()
        dice = random.Random(f"who/{scene.seed}")
        killer = Killer(client, scene.proxy, kit.home.gateways, dice)
        for point in scene.points:
            killer.kill(point)
        result = client.wait_for_end()
    finally:
        if not client.has_ended:
            client.kill()
        torn_down = orchestrator.teardown(client.fleet)
        for node, tail in torn_down.log_tails.items():
            (folder / f"{node.replace('/', '-')}.log").write_text(tail)
        (folder / "exchanges.json").write_text(json.dumps(scene.proxy.ask("exchanges")))
    assert list(scratch.iterdir()) == []
    return Outcome(result, killer, client)


def _environment(kit: ClientKit, scratch: Path) -> dict[str, str]:
    """The client's environment, with temporary files in `scratch`."""
    keys = {name: os.environ[name] for name in _CREDENTIALS if name in os.environ}
    return {**kit.home.environment, **keys, "TMPDIR": str(scratch)}
