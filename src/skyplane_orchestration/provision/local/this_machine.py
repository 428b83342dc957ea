"""The identity of this machine, and the refusal of fleets on other machines."""

from __future__ import annotations

import socket
from pathlib import Path

from skyplane_orchestration.errors import ForeignHost


def host_identity() -> str:
    """`host name/boot id`: processes of another boot are gone."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()}/{boot_id}"


def is_here(host: str) -> bool:
    """Whether a host identity is that of this machine, in any boot."""
    return host.rpartition("/")[0] == host_identity().rpartition("/")[0]


def require_this_host(host: str, fleet_key: str) -> None:
    """Raise ForeignHost for a fleet of another machine or another boot."""
    here = host_identity()
    if host != here:
        there, here = ("{0} (boot {2})".format(*one.rpartition("/")) for one in (host, here))
        raise ForeignHost(
            f"fleet {fleet_key} runs as processes on {there}, and this is {here}; with a local"
            " fleet, provision, transfer and teardown must run on one host: use the one-task form"
            " `SkyplaneTransferOperator(fleet=None)` or `skyplane-orch cp`, which"
            " provisions, transfers and tears down in one task"
        )
