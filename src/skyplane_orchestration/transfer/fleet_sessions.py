"""Control sessions with the gateways of one fleet, and parallel calls to them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self, TypeVar

from skyplane_gateway.common.dialing import Dial, directly
from skyplane_gateway.control.client import IN_MEMORY, ControlClient
from skyplane_orchestration.errors import AddressTaken, SkyplaneError
from skyplane_orchestration.model.fleet import Fleet, GatewayHandle

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

T = TypeVar("T")

#: Gateways that are called at the same time.
_PARALLEL_CALLS: Final = 16


class FleetSessions:
    """One session per gateway, opened on first use.

    A peer that cannot prove to be of the fleet raises `AddressTaken`. A wrong fleet secret of
    the caller looks the same here; `FleetControl` tells the two apart. `name` identifies the
    caller among others that follow the same transfer. `dial_to` is that of its provisioner.
    """

    def __init__(
        self,
        fleet: Fleet,
        authority: Authority,
        dial_to: Callable[[str, str], Dial],
        *,
        timeout_s: float = 10.0,
        name: str = "",
    ) -> None:
        self._authority = authority
        self._dial_to = dial_to
        self._timeout_s = timeout_s
        self._name = name
        self._context: ssl.SSLContext | None = None
        self._clients: dict[str, ControlClient] = {}
        self.fleet = fleet

    def of(self, handle: GatewayHandle) -> ControlClient:
        client = self._clients.get(handle.node)
        if client is None:
            is_in_memory = handle.control[0] == IN_MEMORY
            if self._context is None and not is_in_memory:
                self._context = self._authority.client_context()
            client = ControlClient(
                *handle.control,
                None if is_in_memory else self._context,
                self._authority.expected_uri(handle.node),
                self._timeout_s,
                wrong_peer_error=AddressTaken,
                session=self._name,
                dial=directly if is_in_memory else self._dial_to(self.fleet.key, handle.node),
            )
            self._clients[handle.node] = client
        return client

    def each(
        self,
        handles: Iterable[GatewayHandle],
        call: Callable[[GatewayHandle, ControlClient], T],
        *,
        at_once: int = _PARALLEL_CALLS,
    ) -> dict[str, T]:
        """Call every gateway, so many at the same time; node -> answer.

        Raises the first error after all calls have ended.
        """
        pairs = [(handle, self.of(handle)) for handle in handles]
        if len(pairs) == 1:
            [(handle, client)] = pairs
            return {handle.node: call(handle, client)}
        with ThreadPoolExecutor(at_once, thread_name_prefix="control") as threads:
            futures = {
                handle.node: threads.submit(call, handle, client) for handle, client in pairs
            }
        return {node: future.result() for node, future in futures.items()}

    def each_that_answers(
        self, handles: Iterable[GatewayHandle], call: Callable[[GatewayHandle, ControlClient], T]
    ) -> tuple[dict[str, T], dict[str, SkyplaneError]]:
        """As `each`, but returns answers and errors instead of raising."""

        def guarded(handle: GatewayHandle, client: ControlClient) -> T | SkyplaneError:
            try:
                return call(handle, client)
            except SkyplaneError as error:
                return error

        answers: dict[str, T] = {}
        errors: dict[str, SkyplaneError] = {}
        for node, answer in self.each(handles, guarded).items():
            if isinstance(answer, SkyplaneError):
                errors[node] = answer
            else:
                answers[node] = answer
        return answers, errors

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
