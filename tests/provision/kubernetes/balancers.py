"""A stand-in for the controller of a cloud that makes load balancers for Services.

As such a controller does, it gives a Service an address, passes connections on to the Pod behind
it, keeps the Service by a finalizer until the load balancer is gone, and lets in the sources that
the Service names. Like theirs, its connections to Pods come from itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.provision.kubernetes.cluster import Cluster

_FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"
_LOOK_S: Final = 0.1
#: How long a cloud takes to delete one, longer than Pods take to end.
_ENDS_IN_S: Final = 5.0
_READ_BYTES: Final = 1 << 16


@dataclass
class Balancers:
    """All of a cluster.

    Args:
        network: the first three numbers of their addresses, which are this machine's.

    Attributes:
        callers: addresses of those that were let in.
        refused: and of those that were not.
    """

    cluster: Cluster
    network: str
    callers: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _open: dict[str, list[asyncio.Server]] = field(default_factory=dict)

    async def run(self) -> None:
        while True:
            for service in await asyncio.to_thread(self.cluster.items, "/api/v1/services"):
                if service["spec"].get("type") != "LoadBalancer":
                    continue
                uid = service["metadata"]["uid"]
                if "deletionTimestamp" in service["metadata"]:
                    await self._end(service)
                elif uid not in self._open:
                    await self._begin(service)
            await asyncio.sleep(_LOOK_S)

    async def _begin(self, service: Mapping[str, Any]) -> None:
        address, spec = f"{self.network}.{next(self._numbers)}", service["spec"]
        await self._patch(service, "", {"metadata": {"finalizers": [_FINALIZER]}})
        self._open[service["metadata"]["uid"]] = [
            await self._serve(service, address, port["port"], port["targetPort"])
            for port in spec["ports"]
        ]
        # A name, as AWS gives: only the resolver knows that it is this address.
        one, two, three, four = map(int, address.split("."))
        name = f"{one}.{two}.{256 * three + four}"
        status = {"loadBalancer": {"ingress": [{"hostname": name}]}}
        await self._patch(service, "/status", {"status": status})

    async def _end(self, service: Mapping[str, Any]) -> None:
        servers = self._open.pop(service["metadata"]["uid"], [])
        for server in servers:
            server.close()
        await asyncio.sleep(_ENDS_IN_S)
        await self._patch(service, "", {"metadata": {"finalizers": None}})

    async def _patch(self, service: Mapping[str, Any], sub: str, body: object) -> None:
        meta = service["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/services/{meta['name']}{sub}"
        await asyncio.to_thread(self.cluster.call, "PATCH", path, body)

    async def _serve(
        self, service: Mapping[str, Any], address: str, port: int, target: int
    ) -> asyncio.Server:
        sources = service["spec"].get("loadBalancerSourceRanges", ["0.0.0.0/0"])
        allowed = [ipaddress.ip_network(one) for one in sources]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = writer.get_extra_info("peername")[0]
            is_allowed = any(ipaddress.ip_address(peer) in one for one in allowed)
            (self.callers if is_allowed else self.refused).add(peer)
            with contextlib.closing(writer), contextlib.suppress(OSError):
                pod = await asyncio.to_thread(self._pod_of, service) if is_allowed else ""
                if not pod:
                    return
                its_reader, its_writer = await asyncio.open_connection(pod, target)
                with contextlib.closing(its_writer):
                    await asyncio.gather(_pump(reader, its_writer), _pump(its_reader, writer))

        return await asyncio.start_server(serve, address, port)

    def _pod_of(self, service: Mapping[str, Any]) -> str:
        """The address of the Pod behind it; empty if none runs."""
        chosen = ",".join(f"{name}={text}" for name, text in service["spec"]["selector"].items())
        namespace = service["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={chosen}"
        running = [one for one in self.cluster.items(path) if one["status"]["phase"] == "Running"]
        return str(running[0]["status"]["podIP"]) if running else ""


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await reader.read(_READ_BYTES):
            writer.write(part)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


@contextmanager
def balancers(cluster: Cluster, network: str) -> Iterator[Balancers]:
    made = Balancers(cluster, network)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="balancers")
    thread.start()
    running = asyncio.run_coroutine_threadsafe(made.run(), loop)
    try:
        yield made
        # An error of its own would look like a load balancer that never comes.
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
