"""The first process of an instance: enrols it, runs its gateways, and ends with them."""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import io
import logging
import os
import shutil
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, TextIO

from skyplane_gateway.common.errors import ConfigurationInvalid, SkyplaneError
from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control.listener import bound
from skyplane_gateway.enrolment.documents import MOST_DOCUMENT_BYTES, Delivery, EnrolmentDocument
from skyplane_gateway.enrolment.gateway_files import config_path, write_gateways
from skyplane_gateway.enrolment.identity import InstanceIdentity
from skyplane_gateway.enrolment.output import GatewayLog, InstanceConsole
from skyplane_gateway.enrolment.server import EnrolmentServer, enrolment_context

log = logging.getLogger(__name__)

#: Gateways end within 25 s of a SIGTERM; then they are killed.
_END_TIMEOUT_S: Final = 35.0

_READ_BYTES: Final = 1 << 16

#: Begins the name of the directory with the gateways' files.
ROOT_PREFIX: Final = "skyplane-"


def run(arguments: Sequence[str], stdin: BinaryIO, stdout: TextIO) -> int:
    """`skyplane-gateway enrol`: run an instance until its end.

    0: all gateways ended as they should. 1: one died, or no orchestrator came. 2: the document
    cannot be used.
    """
    parser = argparse.ArgumentParser(
        prog="skyplane-gateway enrol",
        description="Waits for an orchestrator, then runs the gateways of an instance."
        " Reads the enrolment document from standard input, or from a file.",
    )
    parser.add_argument("--address", required=True, help="address of this machine to listen on")
    parser.add_argument("--port", type=int, help="to listen on, in place of the document's")
    parser.add_argument("--directory", type=Path, help="private directory for files of gateways")
    parser.add_argument("--document", type=Path, help="file with the enrolment document")
    options = parser.parse_args(arguments)
    console = InstanceConsole(stdout)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=console
    )
    root = Path(tempfile.mkdtemp(prefix=ROOT_PREFIX, dir=options.directory))  # With mode 0700.
    try:
        if options.document:
            stdin = io.BytesIO(options.document.read_bytes())
        return asyncio.run(_supervise(stdin, options.address, options.port, root, console))
    except (SkyplaneError, OSError) as error:
        console.write(f"skyplane-gateway: {error}")
        return 2
    finally:
        shutil.rmtree(root, ignore_errors=True)
        console.close()


async def _supervise(
    stdin: BinaryIO, address: str, port: int | None, root: Path, console: InstanceConsole
) -> int:
    stop = asyncio.Event()
    # Nothing else runs yet. The document, with its token, is gone once this call has returned.
    raw = stdin.read(MOST_DOCUMENT_BYTES + 1)
    if len(raw) > MOST_DOCUMENT_BYTES:
        raise ConfigurationInvalid(f"the enrolment document exceeds {MOST_DOCUMENT_BYTES} bytes")
    document = EnrolmentDocument.from_json(raw.decode(errors="replace"))
    listener = bound(address, document.port if port is None else port)
    configs = await _enrolled(document, address, root, stop, listener)
    if stop.is_set():
        log.info("ending: asked to end before the enrolment")
        return 0
    return await _Gateways(configs, console).run(stop) if configs else 1


async def _enrolled(
    document: EnrolmentDocument,
    address: str,
    root: Path,
    stop: asyncio.Event,
    listener: socket.socket,
) -> Mapping[str, GatewayConfig]:
    """The gateways to run; none if nobody came in time, or `stop` was set."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    identity = InstanceIdentity.create(dt.datetime.now(dt.UTC))
    try:
        context = enrolment_context(identity, document.authority_pem, root)
    except ssl.SSLError as error:
        raise ConfigurationInvalid(f"the certificate of the authority: {error}") from error
    configs: dict[str, GatewayConfig] = {}

    def accept(delivery: Delivery) -> None:
        configs.update(write_gateways(delivery, document, identity, root=root, address=address))

    server = EnrolmentServer(document, identity, context, listener, accept)
    port = listener.getsockname()[1]
    log.info("%s waits for its orchestrator, on %s port %d", document.instance, address, port)
    try:
        await _first_of(server.is_delivered.wait(), stop.wait(), timeout_s=document.start_within_s)
    finally:
        await server.close()
    if not configs and not stop.is_set():
        log.error("ending: no orchestrator came within %g s", document.start_within_s)
    return configs


class _Gateways:
    """The gateway processes of an instance."""

    def __init__(self, configs: Mapping[str, GatewayConfig], console: InstanceConsole) -> None:
        self._configs = configs
        self._console = console
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._has_died = False

    async def run(self, stop: asyncio.Event) -> int:
        """Until all have ended; they are asked to end when one dies, or `stop` is set."""
        try:
            for config in self._configs.values():
                await self._start(config)
            lives = [asyncio.create_task(self._live(node, stop)) for node in self._processes]
            ended = asyncio.wait(lives, return_when=asyncio.FIRST_EXCEPTION)
            await _first_of(ended, stop.wait())
            self._send(signal.SIGTERM)
            await asyncio.wait(lives, timeout=_END_TIMEOUT_S)
            self._send(signal.SIGKILL)
            await asyncio.gather(*lives)
        finally:
            self._send(signal.SIGKILL)
        log.info("ending: all gateways have ended")
        return 1 if self._has_died else 0

    async def _start(self, config: GatewayConfig) -> None:
        # The home is the gateway's own, since SDKs look for profiles and tokens there. A session
        # of its own keeps it out of signals of a terminal, which would arrive twice.
        self._processes[config.node] = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "skyplane_gateway",
            "--config",
            str(config_path(config)),
            "--fleet",
            config.fleet_key,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd="/",
            env={**os.environ, "HOME": config.directory},
            start_new_session=True,
        )

    async def _live(self, node: str, stop: asyncio.Event) -> None:
        """Follow one gateway until its end."""
        process, config = self._processes[node], self._configs[node]
        assert process.stdout is not None
        output = GatewayLog(node, config.log_path, self._console)
        while chunk := await process.stdout.read(_READ_BYTES):
            output.write(chunk)
        output.close()
        status = await process.wait()
        if status == 0:
            log.info("gateway %s has ended", node)
            return
        how = f"with status {status}" if status > 0 else f"by signal {-status}"
        log.error("gateway %s died %s; this instance ends, and its other gateways too", node, how)
        self._has_died = True
        stop.set()

    def _send(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(number)


async def _first_of(*waits: Awaitable[object], timeout_s: float | None = None) -> None:
    """Wait until one of them has ended, or the time has passed; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
