"""A stand-in for a node: it takes every Pod, and runs it by other means than containers.

It binds Pods as a scheduler does, reports their status, ends them, and serves what the API server
passes on to a node: the log of a container, and port-forwards as websockets
(`v4.channel.k8s.io`).
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
from aiohttp import WSMsgType, web
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from tests.provision.kubernetes.cluster import Cluster

_NODE: Final = "stand-in"
_HOST: Final = "127.0.0.1"
_LOOK_S: Final = 0.05
_READ_BYTES: Final = 1 << 16
_OVER: Final = ("Succeeded", "Failed")
#: What a node says that may not read a registry.
NO_IMAGE: Final = "Back-off pulling image: ErrImagePull: pull access denied"


class Running(Protocol):
    """A Pod's container that runs."""

    address: str

    def exit_code(self) -> int | None:
        """None while it runs."""

    def end(self, grace_s: float) -> None:
        """Ask it to end, and end it after that time."""

    def log(self) -> bytes: ...

    async def dial(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect with a port of its loopback address, as a container runtime does."""


class Runs(Protocol):
    """How containers run."""

    def start(self, pod: Mapping[str, Any], files: Mapping[str, Mapping[str, bytes]]) -> Running:
        """Start the container of a Pod.

        Args:
            files: path of a volume of a Secret -> its files.
        """


@dataclass
class Kubelet:
    """The node; all of it runs on an event loop of a thread of its own.

    Attributes:
        unschedulable: no Pod gets a node.
        unpullable: the registry gives nobody an image.
        holds_ending: Pods that are to end stay.
        seen: uids of all Pods that it has run.
    """

    cluster: Cluster
    runs: Runs
    folder: Path
    unschedulable: bool = False
    unpullable: bool = False
    holds_ending: bool = False
    seen: set[str] = field(default_factory=set)
    _running: dict[str, Running] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubelet")
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result(30)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def running(self) -> list[Running]:
        return [one for one in self._running.values() if one.exit_code() is None]

    # -- the node

    async def _begin(self) -> None:
        token = self.cluster.tokens["admin"]
        self._http = aiohttp.ClientSession(
            self.cluster.url,
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(ssl=self.cluster.tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._serve_log)
        app.router.add_get("/portForward/{namespace}/{pod}", self._serve_port_forward)
        self._server = web.AppRunner(app)
        await self._server.setup()
        site = web.TCPSite(self._server, _HOST, 0, ssl_context=_tls(self.folder))
        await site.start()
        port = self._server.addresses[0][1]
        await self._call("POST", "/api/v1/nodes", {"metadata": {"name": _NODE}})
        status = {
            "addresses": [{"type": "InternalIP", "address": _HOST}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await self._call("PATCH", f"/api/v1/nodes/{_NODE}/status", {"status": status})
        self._spawn(self._watch())

    async def _close(self) -> None:
        for one in self._running.values():
            one.end(0.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._call("DELETE", f"/api/v1/nodes/{_NODE}")
        await self._server.cleanup()
        await self._http.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, method: str, path: str, body: object = None) -> Any:
        """The answer; None for an error, which the next look at the Pod corrects."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": kind}
        async with self._http.request(method, path, data=data, headers=headers) as answer:
            found = await answer.json()
            return found if answer.status < 300 else None

    async def _watch(self) -> None:
        version = ""
        while True:
            if not version:
                listed = await self._call("GET", "/api/v1/pods")
                version = listed["metadata"]["resourceVersion"]
                for pod in listed["items"]:
                    self._spawn(self._look_at(pod))
            path = f"/api/v1/pods?watch=1&resourceVersion={version}&timeoutSeconds=300"
            async with self._http.get(path) as events:
                while line := await events.content.readline():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "DELETED":
                        self._spawn(self._look_at(event["object"]))

    async def _look_at(self, pod: dict[str, Any]) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        if "deletionTimestamp" in meta:
            await self._end(pod)
        elif not pod["spec"].get("nodeName"):
            await self._schedule(pod)
        elif pod["status"]["phase"] == "Pending" and uid not in self.seen:
            self.seen.add(uid)
            await self._run(pod)

    async def _schedule(self, pod: dict[str, Any]) -> None:
        if self.unschedulable:
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient cpu.",
            }
            await self._report(pod, {"conditions": [condition]})
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": _NODE}
        name = {"name": pod["metadata"]["name"]}
        await self._call("POST", f"{_path(pod)}/binding", {"metadata": name, "target": target})

    # -- Pods

    async def _run(self, pod: dict[str, Any]) -> None:
        files: dict[str, dict[str, bytes]] = {}
        volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
        for mount in pod["spec"]["containers"][0]["volumeMounts"]:
            if "secret" in (volume := volumes[mount["name"]]):
                files[mount["mountPath"]] = await self._secret(pod, volume["secret"]["secretName"])
        if self.unpullable:
            waits = {"reason": "ImagePullBackOff", "message": NO_IMAGE}
            status = _container(pod, {"waiting": waits}, is_ready=False)
            await self._report(pod, {"podIP": "198.51.100.254", "containerStatuses": [status]})
            return
        started = self.runs.start(pod, files)
        self._running[pod["metadata"]["uid"]] = started
        state = {"running": {"startedAt": _now()}}
        await self._report(
            pod,
            {
                "phase": "Running",
                "podIP": started.address,
                "podIPs": [{"ip": started.address}],
                "hostIP": _HOST,
                "startTime": _now(),
                "containerStatuses": [_container(pod, state, is_ready=True)],
            },
        )
        while (code := started.exit_code()) is None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        reason = "Error" if code else "Completed"
        ended: dict[str, Any] = {"exitCode": code, "reason": reason, "finishedAt": _now()}
        await self._report(
            pod,
            {
                "phase": "Failed" if code else "Succeeded",
                "containerStatuses": [_container(pod, {"terminated": ended}, is_ready=False)],
            },
        )

    async def _secret(self, pod: Mapping[str, Any], name: str) -> dict[str, bytes]:
        """As a node does, it waits until the Secret is there."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{name}"
        while (found := await self._call("GET", path)) is None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        return {key: base64.b64decode(value) for key, value in found["data"].items()}

    async def _end(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        started = self._running.get(uid)
        if started is not None:
            started.end(float(pod["metadata"].get("deletionGracePeriodSeconds", 30)))
        while self.holds_ending or (  # noqa: ASYNC110
            started is not None and started.exit_code() is None
        ):
            await asyncio.sleep(_LOOK_S)
        self.seen.add(uid)
        gone = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await self._call("DELETE", _path(pod), gone)

    async def _report(self, pod: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        await self._call("PATCH", f"{_path(pod)}/status", {"status": status})

    # -- what the API server passes on

    async def _found(self, request: web.Request) -> Running:
        names = request.match_info
        path = f"/api/v1/namespaces/{names['namespace']}/pods/{names['pod']}"
        pod = await self._call("GET", path)
        uid = "" if pod is None else pod["metadata"]["uid"]
        if uid not in self._running:
            raise web.HTTPNotFound(text="no such Pod")
        return self._running[uid]

    async def _serve_log(self, request: web.Request) -> web.Response:
        lines = (await self._found(request)).log().splitlines(keepends=True)
        last = int(request.query.get("tailLines", len(lines)))
        return web.Response(body=b"".join(lines[-last:]), content_type="text/plain")

    async def _serve_port_forward(self, request: web.Request) -> web.WebSocketResponse:
        """One port: channel 0 has its bytes, channel 1 its error; both begin with its number."""
        found = await self._found(request)
        port = int(request.query["port"])
        stream = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await stream.prepare(request)
        for channel in (b"\0", b"\1"):
            await stream.send_bytes(channel + port.to_bytes(2, "little"))
        try:
            reader, writer = await found.dial(port)
        except OSError as error:
            await stream.send_bytes(b"\1" + f"failed to connect to {port}: {error}".encode())
            await stream.close()
            return stream
        back = asyncio.ensure_future(_copy(reader, stream))
        try:
            async for message in stream:
                if message.type == WSMsgType.BINARY and message.data[:1] == b"\0":
                    writer.write(message.data[1:])
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
            back.cancel()
            with suppress(asyncio.CancelledError):
                await back
        return stream


async def _copy(reader: asyncio.StreamReader, stream: web.WebSocketResponse) -> None:
    with suppress(OSError):
        while part := await reader.read(_READ_BYTES):
            await stream.send_bytes(b"\0" + part)
    await stream.close()


def _path(pod: Mapping[str, Any]) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _container(
    pod: Mapping[str, Any], state: Mapping[str, Any], *, is_ready: bool
) -> dict[str, Any]:
    one = pod["spec"]["containers"][0]
    return {
        **{"name": one["name"], "image": one["image"], "imageID": one["image"]},
        **{"ready": is_ready, "restartCount": 0, "state": state},
    }


def _tls(folder: Path) -> ssl.SSLContext:
    """With a certificate that nobody checks: the API server is not told whom to trust."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NODE)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, algorithm=None)
    )
    path = folder / "kubelet.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
