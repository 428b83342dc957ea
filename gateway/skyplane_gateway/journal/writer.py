"""Keeps a transfer's journal at the destination while its ledger changes.

At most one write is under way; what happens meanwhile goes with the next. The clock is
the event loop's. Everybody who needs an event to be durable waits for `flush`; nobody else
waits for the journal.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from skyplane_gateway.errors import (
    WAITED_FOR,
    GatewayError,
    GatewayUnreachable,
    SkyplaneError,
    StoreError,
)
from skyplane_gateway.journal.document import DoneRow, Journal, LostRow, UploadRow
from skyplane_gateway.journal.state import Ledger
from skyplane_gateway.journal.totals import Totals

log = logging.getLogger(__name__)

#: Runs a verb at a sink that answers.
Verb = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]

#: A journal is written that often even where nothing happens: a sweep takes one for left
#: behind that has not been for a day.
HEARTBEAT_S: Final = 1800.0

#: Longest that an event waits for its way into the journal, without a `flush`, while the
#: journal is short.
INTERVAL_S: Final = 0.5

#: A long journal is written more seldom: so many bytes a second, on the average. Neither
#: the store nor the sink's processor is there for the journal.
PACE_BYTES_PER_S: Final = 1 << 20

#: So many bytes at the destination that no journal knows of are written down at once.
UNWRITTEN_BYTES: Final = 256 << 20

#: Writings one after another that fail, before the transfer does.
MAX_ATTEMPTS: Final = 6
#: None begins later than so long after the first: a store that hangs takes minutes for each.
ATTEMPTS_WITHIN_S: Final = 120.0
_BACKOFF_S: Final = 0.5
_LONGEST_BACKOFF_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What earlier epochs left.

    Attributes:
        journal: of the newest epoch that had this rule; None where there is none, or where
            one newer than that cannot be read: it may have said otherwise.
        strays: uploads that older journals, or journals of another rule, name and that one
            does not, or not as those that go on: to be aborted.
        lost: requests without an answer, of which nobody has looked for what they began.
        unreadable: what is wrong with each of those that cannot be read.
    """

    journal: Journal | None
    strays: tuple[UploadRow, ...]
    lost: tuple[LostRow, ...] = ()
    unreadable: tuple[str, ...] = ()


async def take_over(
    call: Verb, folder: str, transfer_key: str, epoch: int, rule: str
) -> Inheritance:
    """Read what earlier epochs left, and see that their leads write no more.

    Raises:
        StaleEpoch: a newer epoch has begun.
        StoreError, GatewayError: as the sink says.
    """
    answer = await call(
        "read_journals",
        {"folder": folder, "transfer_key": transfer_key, "seal_before": epoch, "rule": rule},
    )
    unreadable = {int(number): str(what) for number, what in answer["unreadable"].items()}
    return inheritance([Journal.from_dict(row) for row in answer["journals"]], rule, unreadable)


def inheritance(
    journals: Sequence[Journal], rule: str, unreadable: Mapping[int, str] | None = None
) -> Inheritance:
    """What the journals leave to a lead of that rule.

    Args:
        journals: those that can be read, oldest epoch first.
        unreadable: epoch -> what is wrong with its journal.
    """
    newest = next((row for row in reversed(journals) if row.rule == rule), None)
    # Whoever wrote the newest had read the older ones, or had a rule that keeps nothing unseen.
    known = newest.epoch if newest is not None else -1
    lost = {epoch: what for epoch, what in (unreadable or {}).items() if epoch > known}
    if lost:
        newest = None
    kept = {row.key: row for row in newest.uploads} if newest is not None else {}
    named = {(row.key, row.upload_id) for row in kept.values()}
    strays = {
        (row.key, row.upload_id): row
        for journal in journals
        for row in journal.uploads
        # An unknown one of a key that goes on is looked for when its turn comes.
        if (row.key, row.upload_id) not in named and row.upload_id is not None
    }
    unknown = {
        row.key: row
        for journal in journals
        for row in journal.uploads
        if row.upload_id is None and row.key not in kept
    }
    # Of older ones the newest tells what nobody has looked for yet.
    requests = {
        row: None
        for journal in journals
        if newest is None or journal.epoch >= newest.epoch
        for row in journal.lost
    }
    if newest is not None:
        newest = replace(newest, lost=tuple(requests))
    wrongs = tuple(lost[epoch] for epoch in sorted(lost))
    return Inheritance(newest, (*strays.values(), *unknown.values()), tuple(requests), wrongs)


class JournalKeeper:
    """Writes one epoch's journal.

    Args:
        call: runs a verb at a sink; it chooses another sink when one does not answer.
        folder: see `folder_of_destination`.
        identity: transfer key, epoch, rule and chunk bytes; `writer` must be this
            process's own (a random text).
        inherited: the newest journal of the same rule; its rows live on in ours.
        totals: of all epochs until now.
        interval_s: see `INTERVAL_S`.
        heartbeat_s: see `HEARTBEAT_S`.
        rng: of the pauses between attempts; the system's by default.
    """

    def __init__(
        self,
        call: Verb,
        folder: str,
        identity: Journal,
        inherited: Journal | None,
        *,
        totals: Callable[[], Totals] = Totals,
        interval_s: float = INTERVAL_S,
        heartbeat_s: float = HEARTBEAT_S,
        rng: random.Random | None = None,
    ) -> None:
        self._call = call
        self._rng = rng or random.SystemRandom()
        self._folder = folder
        self._totals = totals
        self._identity = identity
        self._interval_s = interval_s
        self._heartbeat_s = heartbeat_s
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
        self._ledger = Ledger(start)
        self._etag: str | None = None
        self._written_s = 0.0
        self._sequence = 0
        #: Revision of the ledger that is durable.
        self._durable = -1
        self._unwritten_bytes = 0
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()
        self._timer: asyncio.TimerHandle | None = None
        self._error: SkyplaneError | None = None
        self._is_over = False

    # -- events; see `Ledger`

    def listed(self, key: str, *, is_last: bool = False) -> None:
        self._ledger.listed(key, is_last=is_last)
        self._touch()

    def intent(self, row: UploadRow) -> None:
        self._ledger.intent(row)
        self._touch()

    def created(self, key: str, upload_id: str) -> None:
        self._ledger.created(key, upload_id)
        # At once: an upload without a name can only be looked for.
        self._wanted.set()

    def lost(self, row: LostRow) -> None:
        self._ledger.lost(row)
        self._touch()

    def settled(self, key: str) -> None:
        self._ledger.settled(key)
        self._touch()

    def committing(self, key: str, crc32c: int) -> None:
        self._ledger.committing(key, crc32c)
        self._touch()

    def aborted(self, key: str, upload_id: str | None) -> None:
        self._ledger.aborted(key, upload_id)
        self._touch()

    def committed(self, row: DoneRow) -> None:
        self._ledger.committed(row)
        self._unwritten_bytes += row.size_bytes
        self._touch()

    def skipped(self, key: str) -> None:
        self._ledger.skipped(key)
        self._touch()

    def failed(self, key: str, code: str) -> None:
        self._ledger.failed(key, code)
        self._touch()

    def moved(self) -> None:
        self._ledger.moved()
        self._touch()

    @property
    def uploads(self) -> tuple[UploadRow, ...]:
        """Uploads that are open, or may be."""
        return self._ledger.uploads

    @property
    def is_complete(self) -> bool:
        """Whether an epoch has copied all that there was, and nothing was listed since."""
        return self._ledger.is_complete

    # -- writing

    async def flush(self) -> None:
        """Wait until all that has happened is in the journal at the destination.

        Before an upload is created (its `intent`) and before one is completed (its
        `committing`). Needs `run` to run.

        Raises:
            SkyplaneError: the journal cannot be written; the transfer must not go on.
        """
        wanted = self._ledger.revision
        self._wanted.set()
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_over or self._durable >= wanted)
        if self._durable < wanted:
            raise self._error or GatewayError("the journal is not kept any more")

    async def confirm(self, *, is_complete: bool) -> None:
        """Write once more: who has been succeeded must not report an end.

        Args:
            is_complete: no object has failed.

        Raises:
            StaleEpoch: it has been. SkyplaneError: as `flush`.
        """
        self._ledger.ended(is_complete=is_complete)
        await self.flush()

    async def run(self) -> None:
        """Write whenever it is time, until cancelled.

        Raises:
            SkyplaneError: the journal cannot be written; a newer lead, perhaps.
        """
        try:
            while True:
                is_quiet = not await self._is_wanted_in_time()
                self._wanted.clear()
                if is_quiet or self._durable < self._ledger.revision:
                    await self._write()
        except SkyplaneError as error:
            self._error = error
            raise
        finally:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            async with self._changed:
                self._changed.notify_all()

    async def _is_wanted_in_time(self) -> bool:
        """Wait until it is time to write; False when nothing happened for a heartbeat."""
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await self._wanted.wait()
        except TimeoutError:
            return False
        return True

    async def _write(self) -> None:
        revision = self._ledger.revision
        self._unwritten_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sequence += 1
        journal = replace(self._ledger.journal(self._sequence), totals=self._totals())
        answer = await self._patiently(
            "write_journal",
            {"folder": self._folder, "journal": journal.to_dict(), "if_match": self._etag},
        )
        self._etag, self._written_s = str(answer["etag"]), asyncio.get_running_loop().time()
        self._durable = revision
        async with self._changed:
            self._changed.notify_all()

    def place(self) -> dict[str, Any]:
        """What tells a sink which journals are those of the transfer, through this epoch."""
        transfer = self._identity
        return {
            "folder": self._folder,
            "transfer_key": transfer.transfer_key,
            "epoch": transfer.epoch,
        }

    def last_writing(self) -> dict[str, Any]:
        """What tells a sink the store's time of now, by that of the journal."""
        written_s_ago = asyncio.get_running_loop().time() - self._written_s
        return {"journal_etag": self._etag, "written_s_ago": written_s_ago}

    async def _patiently(self, verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        attempt = 0
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + ATTEMPTS_WITHIN_S
        while True:
            attempt += 1
            try:
                return await self._call(verb, arguments)
            except (StoreError, GatewayUnreachable) as error:
                # A sink's patience with a store that throttles is all that there is.
                is_final = error.is_permanent or isinstance(error, WAITED_FOR)
                if is_final or attempt == MAX_ATTEMPTS or loop.time() >= give_up_s:
                    raise
                log.warning("%s goes again: %s", verb, error)
            pause_s = min(_LONGEST_BACKOFF_S, _BACKOFF_S * 2 ** (attempt - 1))
            await asyncio.sleep(self._rng.uniform(0, pause_s))

    def _touch(self) -> None:
        if self._unwritten_bytes >= UNWRITTEN_BYTES:
            self._wanted.set()
        elif self._timer is None and not self._wanted.is_set() and not self._is_over:
            pause_s = max(self._interval_s, self._ledger.journal_bytes / PACE_BYTES_PER_S)
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._wanted.set()


class NoJournal:
    """Takes the place of a keeper where nothing is to be kept."""

    uploads: tuple[UploadRow, ...] = ()

    def listed(self, key: str, *, is_last: bool = False) -> None: ...
    def intent(self, row: UploadRow) -> None: ...
    def created(self, key: str, upload_id: str) -> None: ...
    def lost(self, row: LostRow) -> None: ...
    def settled(self, key: str) -> None: ...
    def committing(self, key: str, crc32c: int) -> None: ...
    def aborted(self, key: str, upload_id: str | None) -> None: ...
    def committed(self, row: DoneRow) -> None: ...
    def skipped(self, key: str) -> None: ...
    def failed(self, key: str, code: str) -> None: ...
    async def flush(self) -> None: ...
    def place(self) -> dict[str, Any]:
        return {}

    def last_writing(self) -> dict[str, Any]:
        return {}


#: Whom the movers tell what happens.
Keeper = JournalKeeper | NoJournal
