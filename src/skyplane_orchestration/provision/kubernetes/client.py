"""Calls of the API of clusters: contexts, timeouts, retries, and what refusals mean.

The only module of this package that imports the client library. Objects are plain JSON, so that
its releases, whose classes differ, do not matter.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final

import urllib3
from kubernetes import client, config, stream
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import (
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    SkyplaneError,
)
from skyplane_orchestration.provision.fleet.error_rules import ErrorResponse, otherwise
from skyplane_orchestration.provision.fleet.retries import ask
from skyplane_orchestration.provision.kubernetes.options import (
    IN_CLUSTER,
    ClusterRegion,
    KubernetesOptions,
)
from skyplane_orchestration.provision.parallel import in_background

_LOADED_WITHIN_S: Final = 60.0
_READ_BYTES: Final = 1 << 16

#: Codes of refusals ("reason" of a Status).
NOT_FOUND: Final = "NotFound"
EXISTS: Final = "AlreadyExists"
CONFLICT: Final = "Conflict"
FORBIDDEN: Final = "Forbidden"

#: Resource -> its group; others are in the core group, whose name is empty.
GROUPS: Final = {
    "jobs": "batch",
    "networkpolicies": "networking.k8s.io",
    "selfsubjectaccessreviews": "authorization.k8s.io",
}
_METHODS: Final = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}
_ERRORS: Final = (ApiException, urllib3.exceptions.HTTPError, OSError)


class ClusterApi:
    """The API of the clusters of some regions; threads may share it."""

    def __init__(self, options: KubernetesOptions, clock: Clock) -> None:
        self._options = options
        self.clock = clock
        self._lock = threading.Lock()
        self._clients: dict[str, Future[DynamicClient]] = {}

    def call(
        self,
        what: str,
        region: ClusterRegion,
        verb: str,
        resource: str,
        name: str = "",
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        expected: Collection[str] = (),
    ) -> Any:
        """The answer to an idempotent request, which is repeated after throttling and faults.

        Args:
            what: begins the message of an error.
            region: whose cluster and namespace are asked.
            verb: as a Role names it: `create`, `get`, `list`, `patch`, `delete`.
            resource: as a Role names it, `jobs`, or `pods/log`, which is text.
            expected: codes of refusals that the caller handles.

        Raises:
            CloudRefusal: one with an expected code.
            CloudAccessDenied, CloudUnavailable, ConfigurationInvalid.
        """
        kind, _, sub = resource.partition("/")
        place = "" if kind.startswith("self") else f"/namespaces/{region.namespace}"
        root = f"/apis/{GROUPS[kind]}/v1" if kind in GROUPS else "/api/v1"
        parts = (root + place, kind, *filter(None, (name, sub)))
        where = f"namespace {region.namespace} of context {region.context or 'that is current'}"

        def send() -> Any:
            answer = self._dynamic(region.context).request(
                _METHODS.get(verb, "GET"),
                "/".join(parts),
                body=body,
                query_params=list((query or {}).items()),
                content_type="application/merge-patch+json" if verb == "patch" else None,
                serialize=False,
                _request_timeout=(10, 60),
            )
            return answer.data.decode(errors="replace") if sub else json.loads(answer.data)

        def request() -> Any:
            used = self._clients.get(region.context)
            try:
                return send()
            except ApiException as error:
                if error.status != 401:
                    raise
                # They have expired, or somebody has renewed the file.
                with self._lock:
                    if self._clients.get(region.context) is used:
                        self._clients.pop(region.context, None)
                return send()

        return ask(
            request,
            self.clock,
            "the API of the cluster",
            what,
            errors=_ERRORS,
            meaning=partial(_meaning, f"{verb} {resource}", where),
            translate=translate,
            expected=expected,
        )

    def items(
        self, what: str, region: ClusterRegion, resource: str, **selectors: str
    ) -> Iterator[dict[str, Any]]:
        """All objects of a kind that have these labels or fields, page by page."""
        query = {**selectors, "limit": "500"}
        while True:
            page = self.call(what, region, "list", resource, query=query)
            yield from page["items"]
            rest = page["metadata"].get("continue", "")
            if not rest:
                return
            query["continue"] = rest

    def port_forward(
        self, region: ClusterRegion, labels: str, port: int, timeout_s: float
    ) -> socket.socket:
        """A stream to a port of the Pod with these labels that runs. Raises OSError."""
        try:
            # The library connects without a time limit.
            found = in_background(partial(self._forwarded, region, labels, port)).result(timeout_s)
        except TimeoutError:
            raise TimeoutError("the API server opens no port-forward in time") from None
        except (SkyplaneError, *_ERRORS) as error:
            # The library's own text of an error has all headers of the answer.
            said = error.reason if isinstance(error, ApiException) else error
            raise ConnectionRefusedError(f"the API server opens no port-forward: {said}") from error
        found.settimeout(timeout_s)
        return found

    def _forwarded(self, region: ClusterRegion, labels: str, port: int) -> socket.socket:
        what, running = "looking for a Pod", "status.phase=Running"
        pods = self.items(what, region, "pods", labelSelector=labels, fieldSelector=running)
        # All workers talk to the same one of two.
        found = sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        if not found:
            raise ConnectionRefusedError("no such Pod runs")
        # An own client: the library changes it for the time of the call.
        own = client.ApiClient(self._dynamic(region.context).client.configuration)
        api = client.CoreV1Api(own)
        forward = stream.portforward(
            api.connect_get_namespaced_pod_portforward,
            found[0]["metadata"]["name"],
            region.namespace,
            ports=str(port),
        )
        return _bridged(socket.socket(fileno=forward.socket(port).detach()))

    def _dynamic(self, context: str) -> DynamicClient:
        """Raises ConfigurationInvalid, CloudUnavailable: the context, or its credentials, fail."""
        with self._lock:
            loading = self._clients.get(context)
            # One that takes long is not begun again: it may wait for somebody's answer.
            if loading is None or (loading.done() and loading.exception()):
                loading = in_background(partial(_loaded, context, self._options.kubeconfig))
                self._clients[context] = loading
        what = f"the context {context or 'that is current'} cannot be used"
        try:
            return loading.result(_LOADED_WITHIN_S)
        except TimeoutError:
            raise CloudUnavailable(
                f"{what}: its plugin gives no credentials within {_LOADED_WITHIN_S:g} s"
            ) from None
        except (config.ConfigException, OSError, ValueError) as error:
            raise ConfigurationInvalid(f"{what}: {error}") from error


def _loaded(context: str, kubeconfig: str) -> DynamicClient:
    made = client.Configuration()
    if context == IN_CLUSTER:
        config.load_incluster_config(client_configuration=made)
    else:
        config.load_kube_config(
            kubeconfig or None, context or None, client_configuration=made, persist_config=False
        )
        # It would wait for a plugin without a time limit, in the middle of a request.
        made.refresh_api_key_hook = None
        if made.host.startswith("https:") and not (made.api_key or made.cert_file):
            # The library logs what a plugin says that fails.
            raise config.ConfigException("it has no credentials, or its plugin gives none")
    # It would ask for all kinds of objects that the cluster has.
    return DynamicClient(client.ApiClient(made), discoverer=lambda *_: None)


def _bridged(inner: socket.socket) -> socket.socket:
    """A socket of which nothing that its owner does reaches the library's as an error.

    The library's thread ends with a traceback where its socket is closed with something unread.
    """
    own, outer = socket.socketpair()

    def serve() -> None:
        with inner, outer:
            back = threading.Thread(target=_pump, args=(outer, inner), daemon=True)
            back.start()
            _pump(inner, outer)
            back.join()

    threading.Thread(target=serve, name="port-forward", daemon=True).start()
    return own


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Pass all on; what a closed target does not take any more is read all the same."""
    is_taken = True
    with suppress(OSError):
        while part := source.recv(_READ_BYTES):
            if is_taken:
                try:
                    target.sendall(part)
                except OSError:
                    is_taken = False
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _meaning(action: str, where: str, error: BaseException) -> ErrorResponse | None:
    """What the API server has said; None for silence, and for answers of something else."""
    if not isinstance(error, ApiException) or not error.status:
        return None
    status, found = int(error.status), None
    # A proxy in front of it answers with something else.
    with suppress(ValueError):
        found = json.loads(error.body or "{}")
    said = found if isinstance(found, dict) else {}
    code = str(said.get("reason") or "")
    message = str(said.get("message") or error.reason or "")
    is_transient = status == 429 or status >= 500
    return ErrorResponse(action, code, status, message, where, is_transient)


def translate(answer: ErrorResponse, what: str) -> SkyplaneError:
    """The error for a refusal; `what` begins its message."""
    said = f"{what}: the API server refuses {answer.action} in {answer.where} ({answer.code})"
    if answer.status == 401:
        return CloudAccessDenied(
            f"{said}; the credentials of the context are wrong or expired: {answer.message}",
            of_credentials=True,
        )
    if answer.status == 403:
        return CloudAccessDenied(
            f"{said}; add the verb to the Role of docs/how-to/kubernetes.md, or ask who runs the"
            f" cluster: {answer.message}"
        )
    return otherwise(answer, said, is_invalid=400 <= answer.status < 500)
