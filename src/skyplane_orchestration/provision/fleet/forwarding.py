"""One port of an instance for all that workers call there: their firewalls may allow no other.

The boot script starts `forward.py`, which connects each caller with the port of the instance that
the caller names. Gateways call each other's ports themselves.

    worker -> instance   `skyplane 7601`, a line
    instance -> worker   `open`, a line; or the end: nothing listens at that port now

Then the worker talks with what listens there.
"""

from __future__ import annotations

import socket
from functools import partial
from importlib.resources import files
from typing import Final

from skyplane_gateway.common.dialing import Dial, dial
from skyplane_orchestration.provision.container import CONTAINER_USER
from skyplane_orchestration.provision.fleet.machines import ENROLMENT_PORT, control_port

_OPEN: Final = b"open\n"

_SCRIPT: Final = r"""
# Workers call this port alone. What listens there may do nothing else.
setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs \
    --inh-caps=-all,+net_bind_service --ambient-caps=-all,+net_bind_service \
    python3 - "$address" {port} {first} {last} <<'PYTHON' &
{program}PYTHON
"""


def forwarding_script(port: int, processes: int) -> str:
    """The part of a boot script that opens the port; it needs `$address`.

    Empty where workers call the ports of the gateways themselves.

    Args:
        port: the fleet's `control_port`.
        processes: gateways of the instance; workers reach their control APIs, and no data.
    """
    if port == ENROLMENT_PORT:
        return ""
    return _SCRIPT.format(
        user=CONTAINER_USER,
        port=port,
        first=ENROLMENT_PORT,
        last=control_port(processes - 1),
        program=files(__package__).joinpath("forward.py").read_text(encoding="utf-8"),
    )


def worker_dial(port: int) -> Dial:
    """How workers connect with instances whose `control_port` this is, by their proxy if any."""
    return dial if port == ENROLMENT_PORT else partial(_forwarded, port)


def _forwarded(by: int, host: str, port: int, timeout_s: float) -> socket.socket:
    """Raises OSError; ConnectionRefusedError where nothing listens at the port behind."""
    stream = dial(host, by, timeout_s)
    try:
        stream.sendall(f"skyplane {port}\n".encode())
        answer = b""
        while len(answer) < len(_OPEN) and (part := stream.recv(len(_OPEN) - len(answer))):
            answer += part
        if answer != _OPEN:
            raise ConnectionRefusedError(
                f"port {by} of {host} does not connect with port {port} behind it: nothing listens"
                " there, or it is no instance of a fleet with this control_port"
            )
    except OSError:
        stream.close()
        raise
    return stream
