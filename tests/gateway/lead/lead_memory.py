"""Runs one lead over very many keys in a process of its own, and says what it took.

    python -m tests.gateway.lead.lead_memory CASE KEYS

prints JSON: the process's peak above what it had before the transfer, in MiB, the CPU
seconds, and how the transfer ended. The stores make up their listings and keep nothing;
the lead, its listing, batches, dispatch, report, state and journal are the real ones.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import random
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from tests.memory_store import create_bucket

from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_gateway.common.errors import PermissionDenied
from skyplane_gateway.common.objects import ObjectInfo, StoreSpec
from skyplane_gateway.config import MIB, Route, Topology, TransferSpec
from skyplane_gateway.journal import state
from skyplane_gateway.journal.document import DoneRow, FailedRow, Journal, UploadRow, rule_digest
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.lead.sink_pool import SinkPeer
from skyplane_gateway.lead.transfer import LeadTransfer, Peers
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.source.chunk_orders import ChunkOrder, ChunkOutcome, ChunkState, RangeOutcome
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore, Wants

TRANSFER: Final = "ab" * 16
FOLDER: Final = "to/"
SIZE_BYTES: Final = 100
SOURCE_TIME_S: Final = 1000.0


class Names:
    """The keys of a place: ascending, all of one length."""

    def __init__(self, count: int, length: int, first: int = 0) -> None:
        self.count = count
        self._first = first
        self._filling = "k" * (length - 9)

    def __getitem__(self, number: int) -> str:
        return f"{number // 1000:06}/{number % 1000:03}{self._filling}"[: 9 + len(self._filling)]

    def after(self, key: str | None) -> int:
        """The number of the first key after that one."""
        return self._first if key is None else int(key[:6]) * 1000 + int(key[7:10]) + 1


class MadeUpStore:
    """Lists objects that it does not have; keeps journals and uploads."""

    def __init__(self, prefix: str, names: Names, modified_s: float) -> None:
        self.spec = StoreSpec("memory", f"made up {prefix}")
        create_bucket(self.spec.bucket)
        self._kept = open_store(self.spec)
        self.capabilities = self._kept.capabilities
        self._prefix = prefix
        self._names = names
        self._modified_s = modified_s
        self.is_listed = False

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        if ".skyplane" in prefix:
            yield from self._kept.list(prefix, start_after=start_after)
            return
        after = start_after.removeprefix(self._prefix) if start_after is not None else None
        for number in range(self._names.after(after), self._names.count):
            yield self._info(number)
        self.is_listed = True

    def _info(self, number: int) -> ObjectInfo:
        key = f"{self._prefix}{self._names[number]}"
        return ObjectInfo(key, SIZE_BYTES, f'"{number:032x}"', self._modified_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)


#: Chunks in flight before the first one ends: as many as a lead allows.
UNDER_WAY: Final = 64

#: After this time without a new chunk there is no other.
NO_MORE_AFTER_S: Final = 0.5


class PatientSource:
    """Ends chunks once as many as possible are in flight.

    Args:
        may_first_end: whether the very first chunk may end as well.
    """

    node = "a"

    def __init__(
        self, outcome_of: Callable[[int], RangeOutcome], may_first_end: Callable[[], bool]
    ) -> None:
        self._outcome_of = outcome_of
        self._may_first_end = may_first_end
        self._orders: list[ChunkOrder] = []
        self._outcomes: deque[tuple[int, ChunkOutcome]] = deque()
        self._last = 0
        self._news = asyncio.Event()

    async def dispatch(self, orders: Sequence[ChunkOrder]) -> None:
        self._orders += orders
        if len(self._orders) >= UNDER_WAY:
            self._end_all(self._orders[-1])
        else:
            self._look_later()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(NO_MORE_AFTER_S, self._end_all, self._orders[-1])

    def _end_all(self, newest: ChunkOrder) -> None:
        if not self._orders or self._orders[-1] is not newest:
            return
        kept = [] if self._may_first_end() else [one for one in self._orders if one.chunk == 1]
        for order in self._orders:
            if order in kept:
                continue
            rows = tuple(self._outcome_of(index) for index in range(len(order.ranges)))
            self._last += 1
            self._outcomes.append((self._last, ChunkOutcome(order.chunk, order.attempt, rows)))
        self._orders = kept
        if kept:
            self._look_later()
        self._news.set()

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        while self._outcomes and self._outcomes[0][0] <= after:
            self._outcomes.popleft()
        if not self._outcomes:
            self._news.clear()
            await self._news.wait()
        return self._last, [outcome for _, outcome in self._outcomes]

    async def chunks(self) -> list[ChunkState]:
        return []

    async def routes(self) -> dict[int, str]:
        return {0: ""}

    def close(self) -> None: ...


class DirectSink:
    """The verbs of a real destination, through JSON as over the control API."""

    def __init__(self, store: ObjectStore, threads: ThreadPoolExecutor) -> None:
        self._destination = Destination(store, "stored")
        self._threads = threads

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, verb, json.dumps(arguments))

    def _run(self, verb: str, arguments: str) -> dict[str, Any]:
        answer = json.dumps(self._destination.run(verb, json.loads(arguments)))
        return json.loads(answer)  # type: ignore[no-any-return]

    def close(self) -> None: ...


def spec_of(case: str, source: StoreSpec, destination: StoreSpec) -> TransferSpec:
    return TransferSpec(
        source=source,
        destination=destination,
        source_prefix="",
        destination_prefix=FOLDER,
        conflict="skip" if "skipped" in case else "replace",
        publish_last=("*",) if "last" in case else (),
        chunk_bytes=MIB,
    )


def outcomes_of(case: str) -> Callable[[int], RangeOutcome]:
    if "failed" in case:
        refused = RangeOutcome(PermissionDenied("access denied", is_permanent=True))
        return lambda index: refused
    return lambda index: RangeOutcome(None, f'"{index:032x}"', index)


def full_journal(spec: TransferSpec, length: int, count: int) -> Journal:
    """A full journal: every kind of row up to its bound."""
    names = Names(count, length)
    numbers = iter(range(count - 1, -1, -1))
    keys = (f"{FOLDER}{names[number]}" for number in numbers)

    def rows(limit_bytes: int, make: Callable[[str], Any]) -> list[Any]:
        bounded: state.BoundedRows[Any] = state.BoundedRows(limit_bytes)
        for key in keys:
            if not bounded.add(key, make(key)):
                break
        return list(bounded)

    def done(key: str, *, is_last: bool = False) -> DoneRow:
        return DoneRow(key, '"0"', '"0"', SIZE_BYTES, 1, is_last)

    last = rows(state.LAST_DONE_BYTES, lambda key: done(key, is_last=True))
    done_rows = rows(state.DONE_BYTES, done)
    begun = rows(state.BEGUN_BYTES, str)
    through = min((row.key for row in done_rows), default=FOLDER)
    behind = rows(state.BEHIND_BYTES, str)
    failed = rows(state.FAILED_BYTES, lambda key: FailedRow(key, "permission-denied"))
    uploads = tuple(
        UploadRow(f"{FOLDER}upload {number:03}", None, f"upload {number:03}", '"0"', 100, 10)
        for number in range(64)
    )
    return Journal(
        TRANSFER, 1, rule_digest(spec), spec.chunk_bytes, writer="0",
        through=through, done=(*done_rows, *last), begun=(*behind, *begun),
        uploads=uploads, failed=tuple(failed), failed_count=len(failed),
    )  # fmt: skip


async def lead(case: str, count: int) -> dict[str, Any]:
    length = 1000 if "long" in case else 30
    names = Names(count, length)
    # Where the first key must not be skipped, only that one is missing.
    there = Names(count if "skipped" in case else 0, length, first=int("behind" in case))
    with ThreadPoolExecutor(4) as threads:
        source = MadeUpStore("", names, SOURCE_TIME_S)
        target = MadeUpStore(FOLDER, there, SOURCE_TIME_S + 1)
        spec = spec_of(case, source.spec, target.spec)
        if "resumed" in case:
            JournalFolder(target, FOLDER, TRANSFER).write(full_journal(spec, length, count), None)
        peer = SinkPeer("b", DirectSink(target, threads).call)
        reading = PatientSource(outcomes_of(case), lambda: "behind" not in case or source.is_listed)
        transfer = LeadTransfer(
            transfer_key=TRANSFER,
            epoch=2,
            spec=spec,
            topology=Topology((Route(0, ("a", "b"), (1,), 1.0),), {}, {}),
            peers=Peers(
                store=source,
                sources={"a": cast("Any", reading)},
                sinks=(peer,),
                capabilities=replace(source.capabilities),
                sink_capacity_bytes={"b": 256 * MIB},
                threads=threads,
            ),
            ack_deadline_s=600.0,
            stall_deadline_s=1200.0,
            clock=SYSTEM_CLOCK,
            rng=random.Random(1),
        )
        await transfer.run()
    gc.collect()
    journals = sum(isinstance(one, state.JournalState) for one in gc.get_objects())
    status = {**transfer.status(), "journals": journals}
    transfer.report.close()
    return status


def resident_mib(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    return int(found.group(1)) / 1024 if found is not None else 0.0


def main(case: str, count: int) -> None:
    logging.basicConfig(level=logging.ERROR)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before_mib = resident_mib("VmRSS")
    began_s = time.process_time()
    status = asyncio.run(lead(case, count))
    print(
        json.dumps(
            {
                "case": case,
                "keys": count,
                "grown_mib": round(resident_mib("VmHWM") - before_mib, 1),
                "cpu_s": round(time.process_time() - began_s, 1),
                **{name: status[name] for name in ("state", "objects", "copied", "skipped")},
                "failed": status["failed"],
                "journals": status["journals"],
                "error": status["error"],
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
