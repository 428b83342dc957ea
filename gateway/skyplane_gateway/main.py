"""The gateway process: `skyplane-gateway --config FILE --fleet KEY [--detach]`.

On an instance of a cloud the first process is `skyplane-gateway enrol`; see `enrolment`.
`skyplane-gateway health` tells whether the gateways of a container answer.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import gc
import json
import logging
import os
import resource
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from aiohttp import web

from skyplane_gateway.common.errors import ConfigurationInvalid, SkyplaneError
from skyplane_gateway.common.identifiers import wire_fleet_id
from skyplane_gateway.common.objects import MIB
from skyplane_gateway.common.schema import parsed
from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control.listener import Listener, bound
from skyplane_gateway.control.tls import client_context, server_context
from skyplane_gateway.control_server.open_gateway import RESPONSE_TIMEOUT_S, OpenGateway
from skyplane_gateway.control_server.server import ControlServer
from skyplane_gateway.service import GatewayService
from skyplane_gateway.transport.pending_connections import (
    CONTROL_PORT_LIMIT,
    DATA_PORT_LIMIT,
    within_open_files,
)

log = logging.getLogger("skyplane_gateway")

#: Threads for control calls and long polls, which mostly wait.
_CALL_THREADS: Final = 64

#: Limit of the threads that still run after everything else.
_THREADS_TIMEOUT_S: Final = 1.0

#: Freed memory that each heap keeps.
KEPT_BYTES: Final = 32 * MIB

#: Heaps: more threads than these share one.
HEAPS: Final = 4

#: Larger blocks come from the kernel each time, and go back to it.
_MOST_ON_HEAP_BYTES: Final = 4 * MIB

# <malloc.h>
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def keep_freed_memory() -> bool:
    """Keep the memory of sent frames for the next ones; False without glibc.

    By default the heap gives 2 MiB and more back to the kernel at once. Each later use then costs a
    page fault for every 4 KiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = (
        (_M_ARENA_MAX, HEAPS),
        (_M_MMAP_THRESHOLD, _MOST_ON_HEAP_BYTES),
        (_M_TRIM_THRESHOLD, KEPT_BYTES),
    )
    return all(mallopt(name, value) for name, value in settings)


def entry_point() -> None:
    code = main(sys.argv[1:])
    leave_busy_threads(code)
    # A last collection of all loaded modules would take longer than the rest of the end.
    gc.freeze()
    sys.exit(code)


def leave_busy_threads(code: int) -> None:
    """End the process although threads still wait for a store that does not respond.

    The interpreter would wait for them, which can take minutes.
    """
    deadline = time.monotonic() + _THREADS_TIMEOUT_S
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.daemon:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            log.warning("%s still waits for a response and is abandoned", thread.name)
            logging.shutdown()
            os._exit(code)


def main(arguments: list[str]) -> int:
    """Run a gateway until its end; 2 for a configuration that cannot be used."""
    if arguments[:1] == ["enrol"]:
        from skyplane_gateway.enrolment import supervisor  # Gateways start without X.509.

        _set_limits()
        return supervisor.run(arguments[1:], sys.stdin.buffer, sys.stdout)
    if arguments[:1] == ["health"]:
        from skyplane_gateway.control import health

        return health.run(arguments[1:])
    parser = argparse.ArgumentParser(prog="skyplane-gateway", description=__doc__)
    parser.add_argument("--config", required=True, type=Path, help="GatewayConfig as JSON")
    parser.add_argument(
        "--fleet", required=True, help="fleet key, by which the orchestrator finds this process"
    )
    parser.add_argument("--detach", action="store_true", help="run on in the background")
    options = parser.parse_args(arguments)
    try:
        config = read_config(options.config, options.fleet)
    except SkyplaneError as error:
        print(f"skyplane-gateway: {error}", file=sys.stderr)  # noqa: T201
        return 2
    _set_limits()
    keep_freed_memory()
    if options.detach and os.fork() > 0:
        return 0
    if options.detach:
        os.setsid()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    asyncio.run(serve(config))
    return 0


def _set_limits() -> None:
    """No core file, which would contain secrets; as many open files as allowed."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def read_config(path: Path, fleet_key: str) -> GatewayConfig:
    """Raises ConfigurationInvalid when the file is missing, broken, or of another fleet."""
    try:
        config = GatewayConfig.from_dict(parsed(path.read_text(), f"cannot read {path}: it"))
    except (OSError, ValueError) as error:
        raise ConfigurationInvalid(f"cannot read {path}: {error}") from error
    if config.fleet_key != fleet_key:
        raise ConfigurationInvalid(f"{path} is of fleet {config.fleet_key}, not {fleet_key}")
    wire_fleet_id(config.fleet_key)
    return config


async def listen(config: GatewayConfig) -> OpenGateway:
    """Start a gateway in this process."""
    loop = asyncio.get_running_loop()
    service = GatewayService(config, client_context(config))
    # With a shorter queue a peer would wait a second behind a burst of connections.
    backlog = within_open_files(DATA_PORT_LIMIT)
    data = await loop.create_server(
        service.router.accept, config.data_host, config.data_port, backlog=backlog
    )
    runner = web.AppRunner(
        ControlServer(service).application(), access_log=None, shutdown_timeout=RESPONSE_TIMEOUT_S
    )
    await runner.setup()
    assert runner.server is not None
    listener = Listener(
        bound(config.control_host, config.control_port),
        server_context(config),
        runner.server,
        within_open_files(CONTROL_PORT_LIMIT),
    )

    async def close() -> None:
        await listener.close()
        await runner.cleanup()

    return OpenGateway(
        service,
        (config.control_host, listener.port),
        data.sockets[0].getsockname()[1],
        data,
        close,
        asyncio.create_task(service.keep_alive()),
    )


async def serve(config: GatewayConfig) -> None:
    """Listen, say so in `ready.json`, live until asked to end or the lease runs out."""
    loop = asyncio.get_running_loop()
    calls = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="call")
    loop.set_default_executor(calls)
    gateway = await listen(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        name = signal.Signals(number).name
        loop.add_signal_handler(number, gateway.service.request_leave, name)
    announce(config, gateway.control[1], gateway.data_port)
    try:
        await gateway.service.shutdown_requested.wait()
        log.info("ending: %s", gateway.service.shutdown_reason)
    finally:
        await gateway.close()
        # Without its directory the fleet counts as torn down, and would not be restarted.
        if not gateway.service.is_leaving:
            remove_traces(config)
        # `asyncio.run` would wait for calls to other gateways that are in flight.
        calls.shutdown(wait=False, cancel_futures=True)
        loop.set_default_executor(ThreadPoolExecutor(1))


def announce(config: GatewayConfig, control_port: int, data_port: int) -> None:
    """Write `ready.json` atomically."""
    document = {"control_port": control_port, "data_port": data_port, "pid": os.getpid()}
    partial = config.ready_path.with_suffix(".partial")
    partial.write_text(json.dumps(document))
    partial.rename(config.ready_path)
    log.info("%s is ready: control %d, data %d", config.node, control_port, data_port)


def remove_traces(config: GatewayConfig) -> None:
    """Remove this gateway's private directory, and the fleet's when it was the last.

    Does not wait for the fleet's lock: its holder removes the directory, or waits for the end of
    this process.
    """
    directory = Path(config.directory)
    shutil.rmtree(directory, ignore_errors=True)
    fleet = directory.parent
    try:
        if _has_gateways(fleet):
            return
        lock = os.open(fleet, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return  # Another process has removed it.
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _has_gateways(fleet):
            shutil.rmtree(fleet, ignore_errors=True)
    except OSError:
        return  # Another process holds the lock, or has removed it.
    finally:
        os.close(lock)


def _has_gateways(fleet: Path) -> bool:
    return any(entry.is_dir() for entry in fleet.iterdir())
