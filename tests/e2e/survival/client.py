"""Runs one transfer in a process of its own, which may be killed, and says how far it is.

Reads one JSON document from stdin. Prints a JSON object a line: the fleet with each lead, the epoch
of each status, at the end the result. Started again it is the same run: it joins or resumes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import TransferFailed
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner
from skyplane_orchestration.security.authority import FleetSecret


def say(**said: Any) -> None:
    print(json.dumps(said), flush=True)


def main() -> None:
    given = json.load(sys.stdin)
    options = LocalOptions(**given["provisioner"], run_root=Path(given["run_root"]))
    client = Client(
        identity=RunIdentity(*given["identity"]),
        provisioner=LocalProvisioner(options),
        secret=FleetSecret(given["secret"].encode()),
        poll_s=0.2,
    )
    try:
        result = client.transfer(
            TransferJob.from_dict(given["job"]),
            Fleet.from_dict(given["fleet"]),
            on_submitted=lambda fleet, where: say(
                fleet=fleet.to_dict(), lead=where.lead, epoch=where.epoch
            ),
            on_status=lambda status: say(epoch=status.epoch),
        )
    except TransferFailed as error:
        failed: Any = error.result
        result = failed
    say(result=result.to_dict())
