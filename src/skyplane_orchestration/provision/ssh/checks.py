"""Whether the hosts can run gateways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.config import MAX_CONNECTIONS
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.provision.local.launch import require_open_files
from skyplane_orchestration.provision.local.runner import Runner
from skyplane_orchestration.provision.provisioner import Finding
from skyplane_orchestration.provision.ssh.container_hosts import why_no_container
from skyplane_orchestration.provision.ssh.containers import ContainerMachine
from skyplane_orchestration.provision.ssh.images import free_images
from skyplane_orchestration.provision.ssh.logins import Login, OpenHost

#: Modules that a gateway imports at its start; those of stores come later.
_REQUIRED_MODULES: Final = ("aiohttp", "awscrt", "cryptography", "httptools")
_NEEDED_FOR_ENVIRONMENTS: Final = ("ensurepip", "venv")
_PORTS_PER_GATEWAY: Final = 2
#: S3 refuses requests whose time is 15 minutes off. A clock that is far off does not stay there.
_MOST_SECONDS_OFF: Final = 300.0


def findings(
    logins: Sequence[Login], runner: Runner, *, needs_modules: bool
) -> tuple[Finding, ...]:
    """One finding for each good host, and one for each thing that a host lacks.

    Args:
        needs_modules: its Python runs the gateways.
    """

    def of_host(login: Login) -> tuple[Finding, ...]:
        name = f"host {login.host.name}"
        found: list[Finding] = []
        try:
            opened = login.opened()
            for text in _lacking(opened, runner, needs_modules=needs_modules):
                found.append(Finding(name, False, text))
            if not found:
                found.append(Finding(name, True, _described(opened, runner.clock)))
        except (SkyplaneError, OSError) as error:
            found.append(Finding(name, False, str(error)))
        return tuple(found)

    with ThreadPoolExecutor(max(1, len(logins))) as pool:
        return tuple(found for group in pool.map(of_host, logins) for found in group)


def missing_modules(entry: OpenHost) -> str:
    """Which requirements of the gateway its Python lacks; empty if none."""
    missing = entry.machine.missing_modules(_REQUIRED_MODULES)
    if not missing:
        return ""
    return (
        f"{entry.host.interpreter} on host {entry.host.name} lacks {', '.join(missing)}; install"
        " the gateway's requirements there, or omit python, so that they are brought"
    )


def cannot_make_environment(entry: OpenHost) -> str:
    """Why its Python cannot make an environment with the requirements; empty if it may do so."""
    missing = entry.machine.missing_modules(_NEEDED_FOR_ENVIRONMENTS)
    if not missing:
        return ""
    return (
        f"{entry.host.interpreter} on host {entry.host.name} lacks {', '.join(missing)}, which"
        " make the environment of gateways; install them (python3-venv in Debian), or name a"
        " python that has the gateway's requirements"
    )


def _lacking(entry: OpenHost, runner: Runner, *, needs_modules: bool) -> Iterator[str]:
    host, machine = entry.host, entry.machine
    if text := _cannot_run_gateways(entry, needs_modules=needs_modules):
        yield text
    for name, address in (("address", host.address), ("data_address", host.data_address)):
        reason = machine.why_not_listen(address) if address else ""
        if reason:
            yield f"gateways cannot listen on its {name} {address}: {reason}"
    try:
        entry.root.prepare()
        free_images(entry, runner)
        machine.remove_root(entry.root.path)
    except SkyplaneError as error:
        yield str(error)
    try:
        require_open_files(machine, 2 * MAX_CONNECTIONS, runner.options.store_threads)
    except SkyplaneError as error:
        yield str(error)
    if host.ports and len(_free_ports(entry)) < _PORTS_PER_GATEWAY:
        yield f"no two of the ports {host.ports} are free; name more ports"
    ahead_s = _seconds_ahead(entry, runner.clock)
    if abs(ahead_s) > _MOST_SECONDS_OFF:
        yield f"its clock is {_offset(ahead_s)} this one; set both by NTP"


def _cannot_run_gateways(entry: OpenHost, *, needs_modules: bool) -> str:
    """Why gateways cannot run on a host; empty if they can."""
    if entry.host.image:
        return why_no_container(entry)
    text = missing_modules(entry) if needs_modules else ""
    return cannot_make_environment(entry) if text and not entry.host.python else text


def _described(entry: OpenHost, clock: Clock) -> str:
    machine = entry.machine
    ports = "any free port"
    if entry.host.ports:
        ports = f"{len(_free_ports(entry))} free ports of {entry.host.ports}"
    program = f"Python {machine.python_version()}"
    if isinstance(machine, ContainerMachine) and machine.engine is not None:
        program = f"{machine.engine.program} {machine.engine.version} with the image"
    return (
        f"{program}, {counted(machine.processors(), 'processor')},"
        f" {ports}, its clock is {_offset(_seconds_ahead(entry, clock))} this one"
    )


def _free_ports(entry: OpenHost) -> list[int]:
    host = entry.host
    addresses = [host.address, host.data_address or host.address]
    return entry.machine.free_ports(addresses, list(host.port_range))


def _seconds_ahead(entry: OpenHost, clock: Clock) -> float:
    """How far its clock is ahead; an error of half a round trip is possible."""
    before_s = clock.wall()
    there_s = entry.machine.wall_s()
    return there_s - (before_s + clock.wall()) / 2


def _offset(ahead_s: float) -> str:
    return f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'}"
