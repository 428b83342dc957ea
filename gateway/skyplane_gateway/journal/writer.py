"""Writes a transfer's journal to the destination while its state changes.

At most one write is in flight; events that happen meanwhile go with the next one. A caller
that needs an event to be durable waits for `flush`; no other caller waits for the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from skyplane_gateway.common.errors import GatewayError, SkyplaneError
from skyplane_gateway.journal.document import Journal
from skyplane_gateway.journal.earlier_epochs import CallSink
from skyplane_gateway.journal.state import JournalState
from skyplane_gateway.journal.totals import Totals

#: A journal is written at least this often, also when nothing happens: the sweep removes a
#: journal that nobody has written for a day.
HEARTBEAT_S: Final = 1800.0

#: Longest delay of an event before it is written without a `flush`, while the journal is short.
INTERVAL_S: Final = 0.5

#: A long journal is written less often: so many bytes a second on average, to spare the store
#: and the sink's processor.
PACE_BYTES_PER_S: Final = 1 << 20

#: So many writes may come at once where the store limits the writes of one key.
_BURST: Final = 3

#: So many committed bytes that no journal names yet are written at once.
UNWRITTEN_BYTES: Final = 256 << 20


class JournalWriter:
    """Writes one epoch's journal.

    Args:
        identity: transfer key, epoch, rule and chunk bytes; `writer` must be a random text of
            this lead alone.
        inherited: the newest journal of the same rule; ours repeats its rows.
        totals: of all epochs until now.
        rewrite_s: see `StoreCapabilities`; of the destination.

    Attributes:
        state: record events here; every event schedules a write.
    """

    def __init__(
        self,
        call: CallSink,
        folder: str,
        identity: Journal,
        inherited: Journal | None,
        *,
        totals: Callable[[], Totals] = Totals,
        interval_s: float = INTERVAL_S,
        heartbeat_s: float = HEARTBEAT_S,
        rewrite_s: float = 0.0,
    ) -> None:
        self._call = call
        self._folder = folder
        self._totals = totals
        self._identity = identity
        self._interval_s = interval_s
        self._heartbeat_s = heartbeat_s
        self._rewrite_s = rewrite_s
        #: When the store accepts another write, if none had come at once.
        self._slot_s = 0.0
        start = identity
        if inherited is not None:
            start = replace(
                inherited,
                epoch=identity.epoch,
                chunk_bytes=identity.chunk_bytes,
                writer=identity.writer,
                sequence=0,
                is_sealed=False,
            )
        self.state = JournalState(start, self._on_change)
        self._etag: str | None = None
        self._written_s = 0.0
        self._sequence = 0
        #: Revision of the state that is durable.
        self._durable = -1
        self._unwritten_bytes = 0
        self._wanted = asyncio.Event()
        self._written = asyncio.Condition()
        self._timer: asyncio.TimerHandle | None = None
        self._error: SkyplaneError | None = None
        self._is_over = False

    def write_soon(self) -> None:
        """Write as soon as the current write has ended."""
        self._wanted.set()

    async def flush(self) -> None:
        """Wait until every event so far is durable at the destination; `run` must be running.

        The lead does so before it creates an upload and before it completes one. When the journal
        cannot be written, this raises and the transfer must stop.
        """
        wanted = self.state.revision
        self._wanted.set()
        async with self._written:
            await self._written.wait_for(lambda: self._is_over or self._durable >= wanted)
        if self._durable < wanted:
            raise self._error or GatewayError("the journal is no longer written")

    async def confirm(self, *, is_complete: bool) -> None:
        """Write once more at the end: a lead that has a successor must not report success.

        Args:
            is_complete: no object has failed.

        Raises:
            StaleEpoch: a newer lead is in charge.
            SkyplaneError: as `flush`.
        """
        self.state.ended(is_complete=is_complete)
        await self.flush()

    async def run(self) -> None:
        """Write when needed, until cancelled. Raises when the journal cannot be written."""
        try:
            while True:
                is_quiet = not await self._is_wanted_in_time()
                self._wanted.clear()
                if is_quiet or self._durable < self.state.revision:
                    await self._write()
        except SkyplaneError as error:
            self._error = error
            raise
        finally:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            async with self._written:
                self._written.notify_all()

    async def _is_wanted_in_time(self) -> bool:
        """Wait for a reason to write; False after a heartbeat without one."""
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await self._wanted.wait()
        except TimeoutError:
            return False
        return True

    async def _write(self) -> None:
        # The store accepts a write of the same key only so often.
        loop = asyncio.get_running_loop()
        pause_s = self._slot_s - _BURST * self._rewrite_s - loop.time()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        self._slot_s = max(self._slot_s, loop.time()) + self._rewrite_s
        revision = self.state.revision
        self._unwritten_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sequence += 1
        journal = replace(self.state.journal(self._sequence), totals=self._totals())
        written = {"folder": self._folder, "journal": journal.to_dict(), "if_match": self._etag}
        # Side by side: a journal of a newer epoch that is there already is found either way, and a
        # newer lead that comes meanwhile seals ours.
        newest, write = await asyncio.gather(
            self._call("require_newest", self.arguments()),
            self._call("write_journal", written),
            return_exceptions=True,
        )
        if isinstance(newest, BaseException):
            raise newest
        if isinstance(write, BaseException):
            raise write
        self._etag, self._written_s = str(write["etag"]), asyncio.get_running_loop().time()
        self._durable = revision
        async with self._written:
            self._written.notify_all()

    def arguments(self) -> dict[str, Any]:
        """Arguments that name the transfer's journals, up to this epoch, to a sink."""
        transfer = self._identity
        return {
            "folder": self._folder,
            "transfer_key": transfer.transfer_key,
            "epoch": transfer.epoch,
        }

    def last_write(self) -> dict[str, Any]:
        """Arguments from which a sink tells the store's current time: the store dates the
        journal when it is written."""
        written_s_ago = asyncio.get_running_loop().time() - self._written_s
        return {"journal_etag": self._etag, "written_s_ago": written_s_ago}

    def _on_change(self, size_bytes: int) -> None:
        self._unwritten_bytes += size_bytes
        if self._unwritten_bytes >= UNWRITTEN_BYTES:
            self._wanted.set()
        elif self._timer is None and not self._wanted.is_set() and not self._is_over:
            pause_s = max(self._interval_s, self.state.journal_bytes / PACE_BYTES_PER_S)
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wanted.set()
