"""An orchestrator in a process of its own, to be killed: runs one transfer, tells how far it is.

`python -m tests.e2e.survival.driver` reads one JSON document from stdin and prints one JSON
object a line: `submitted`, `status` and at the end `result`. Started again with the same
document it is the same run: it joins the transfer, or resumes it.
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
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner
from skyplane_orchestration.security.authority import FleetSecret
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer


def _say(kind: str, document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({kind: document}) + "\n")
    sys.stdout.flush()


def _submitted(fleet: Fleet, submitted: SubmittedTransfer) -> None:
    _say(
        "submitted",
        {
            "epoch": submitted.epoch,
            "lead": submitted.lead,
            "joined": submitted.joined,
            "fleet": fleet.to_dict(),
        },
    )


def _status(status: TransferStatus) -> None:
    _say(
        "status",
        {
            "state": status.state,
            "epoch": status.epoch,
            "listed": status.listed,
            "copied": status.copied,
            "copied_bytes": status.copied_bytes,
            "delivered_bytes": sum(status.delivered_bytes.values()),
        },
    )


def main() -> int:
    given = json.loads(sys.stdin.read())
    options = LocalOptions(**{**given["provisioner"], "run_root": Path(given["run_root"])})
    client = Client(
        identity=RunIdentity(*given["identity"]),
        provisioner=LocalProvisioner(options),
        secret=FleetSecret(given["secret"].encode()),
        poll_s=given["poll_s"],
    )
    try:
        result = client.transfer(
            TransferJob.from_dict(given["job"]),
            Fleet.from_dict(given["fleet"]),
            on_submitted=_submitted,
            on_status=_status,
        )
    except TransferFailed as error:
        known = error.result.to_dict() if isinstance(error.result, TransferResult) else {}
        _say("result", {"error": error.message, **known})
        return 1
    _say("result", result.to_dict())
    return 0


if __name__ == "__main__":
    sys.exit(main())
