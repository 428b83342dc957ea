"""`SkyplaneTransferTrigger`: waits for the end of a submitted transfer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.argument_checks import checks_arguments
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.text_values import refuse_unrendered
from skyplane_orchestration.transfer.progress_log import ProgressLog
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client

Answer = TypeVar("Answer")

#: No event comes earlier. If a trigger fires while the scheduler still records the deferral,
#: Airflow takes the end of the worker's process for that of the task, and fails it.
_FIRST_EVENT_AFTER_S: Final = 10.0


class SkyplaneTransferTrigger(BaseTrigger):
    """Polls a transfer, which renews the lease of its lead, and logs the progress.

    It decides nothing. Its event comes after 10 s at the earliest. It has `end`, a `WatchEnd` or
    `error`; `has_answered`, whether the lead has answered a poll; `message`, the text of an error;
    `watched`, the argument.

    It needs the fleet secret and the connections that the task names, and no file of a worker. Two
    of them may watch the same transfer.

    Args:
        skyplane_conn_id: see `SkyplaneHook`.
        identity: `RunIdentity` as a dict.
        watched: `WatchedTransfer.to_dict()`.
        poll_interval_s: pause between two polls; shorter than `lease_s` of the connection.
        cancel_on_kill: a user who marks the task as failed or clears it stops the transfer. Airflow
            3.3 and later tell the trigger of that.
    """

    @checks_arguments
    def __init__(
        self,
        *,
        skyplane_conn_id: str,
        identity: Mapping[str, Any],
        watched: Mapping[str, Any],
        poll_interval_s: float,
        cancel_on_kill: bool,
    ) -> None:
        refuse_unrendered("skyplane_conn_id", skyplane_conn_id)
        super().__init__()  # type: ignore[no-untyped-call]
        self.skyplane_conn_id = skyplane_conn_id
        self.identity = dict(identity)
        self.watched = dict(watched)
        self.poll_interval_s = poll_interval_s
        self.cancel_on_kill = cancel_on_kill
        self.clock = SYSTEM_CLOCK
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The path of this class, and its arguments as JSON data without a secret."""
        names = ("skyplane_conn_id", "identity", "watched", "poll_interval_s", "cancel_on_kill")
        return (
            "skyplane_orchestration.triggers.transfer.SkyplaneTransferTrigger",
            {name: getattr(self, name) for name in names},
        )

    @classmethod
    def of(
        cls, client: Client, watched: WatchedTransfer, skyplane_conn_id: str, **options: Any
    ) -> SkyplaneTransferTrigger:
        """The trigger that watches on behalf of a client's run."""
        return cls(
            skyplane_conn_id=skyplane_conn_id,
            identity=asdict(client.identity),
            watched=watched.to_dict(),
            **options,
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event, when the watch has ended."""
        earliest_s = self.clock.monotonic() + _FIRST_EVENT_AFTER_S
        event = await self._event()
        if (early_s := earliest_s - self.clock.monotonic()) > 0:
            await self.sleep(early_s)
        yield TriggerEvent({**event, "watched": self.watched})  # type: ignore[no-untyped-call]

    async def _event(self) -> dict[str, Any]:
        has_answered = False
        try:
            client = await _in_thread(self._client)
            watched = WatchedTransfer.from_dict(self.watched)
            watch = client.watch(watched, on_status=ProgressLog(self.log.info))
            while (end := await _in_thread(watch.poll)) is None:
                await self.sleep(self.poll_interval_s)
            has_answered = watch.has_answered
            if end != "silent":
                await _in_thread(watch.leave)
        except SkyplaneError as error:
            return {"end": "error", "has_answered": has_answered, "message": str(error)}
        return {"end": end, "has_answered": has_answered, "message": ""}

    async def on_kill(self) -> None:
        """Stop the transfer, and end a fleet of its own; errors go to the log."""
        if not self.cancel_on_kill:
            return
        client = await _in_thread(self._client)
        watched = WatchedTransfer.from_dict(self.watched)
        key = watched.submitted.transfer_key
        try:
            await _in_thread(lambda: client.cancel(watched.fleet, watched.submitted))
            if watched.owns_fleet:
                await _in_thread(lambda: client.teardown(watched.fleet))
        except SkyplaneError as error:
            self.log.warning("transfer %s may continue until its lease ends: %s", key, error)
        else:
            self.log.info("transfer %s is cancelled", key)

    def _client(self) -> Client:
        # Imported here: a worker that makes the trigger does not need it.
        from skyplane_orchestration.hooks.skyplane import SkyplaneHook

        hook = SkyplaneHook(skyplane_conn_id=self.skyplane_conn_id)
        return hook.client_of(RunIdentity(**self.identity))


async def _in_thread(call: Callable[[], Answer]) -> Answer:
    """The answer of a call that blocks, without blocking other triggers.

    With asgiref, so that Airflow finds its event loop when the call reads a connection.
    """
    return await sync_to_async(call, thread_sensitive=False)()
