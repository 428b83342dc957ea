from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.journal.samples import KEY, upload

from skyplane_gateway.common.errors import GatewayError, StaleEpoch
from skyplane_gateway.journal import writer
from skyplane_gateway.journal.document import DoneRow, Journal
from skyplane_gateway.journal.totals import SentRow, Totals
from skyplane_gateway.journal.writer import JournalWriter

IDENTITY = Journal(KEY, 2, "r", 1, writer="w")


class FakeSink:
    """Stores journals; a test can hold or fail its answers.

    Attributes:
        newer: the error that says that a newer epoch has a journal.
    """

    def __init__(self) -> None:
        self.written: list[Journal] = []
        self.etags: list[str | None] = []
        self.error: Exception | None = None
        self.newer: Exception | None = None
        self.looks = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()
        self.in_flight = 0

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if verb == "require_newest":
            self.looks += 1
            if self.newer is not None:
                raise self.newer
            return {}
        self.in_flight += 1
        assert self.in_flight == 1, "two writes at once"
        try:
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            self.written.append(Journal.from_dict(arguments["journal"]))
            self.etags.append(arguments["if_match"])
            self.arrived.set()
            return {"etag": f"e{len(self.written)}"}
        finally:
            self.in_flight -= 1


@asynccontextmanager
async def writing(
    inherited: Journal | None = None, interval_s: float = 3600.0, **more: Any
) -> AsyncIterator[tuple[JournalWriter, FakeSink, asyncio.Task[None]]]:
    """A writer that runs, with an interval so long that only `flush` and bytes cause writes."""
    sink = FakeSink()
    journal = JournalWriter(sink.call, "out/", IDENTITY, inherited, interval_s=interval_s, **more)
    task = asyncio.create_task(journal.run())
    try:
        yield journal, sink, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_flush_returns_once_all_events_are_written() -> None:
    async with writing() as (journal, sink, _):
        journal.state.listed("a")
        journal.state.upload_intended(upload("a"))
        await journal.flush()
        assert sink.written[-1].uploads == (upload("a"),)
        count = len(sink.written)
        await journal.flush()
        assert len(sink.written) == count


async def test_events_during_a_write_go_together_with_the_next() -> None:
    async with writing() as (journal, sink, _):
        sink.gate.clear()
        flushes = [asyncio.create_task(journal.flush())]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for number in range(20):
            journal.state.upload_intended(upload(f"{number:02}"))
            flushes.append(asyncio.create_task(journal.flush()))
            await asyncio.sleep(0)
        sink.gate.set()
        await asyncio.gather(*flushes)
        assert [len(row.uploads) for row in sink.written] == [0, 20]
        assert sink.etags == [None, "e1"]
        assert [row.sequence for row in sink.written] == [1, 2]


async def test_events_are_written_after_an_interval_without_a_flush() -> None:
    async with writing(interval_s=0.5) as (journal, sink, _):
        journal.state.listed("a")
        journal.state.committed(DoneRow("a", "e", "v", 1, 2))
        await sink.arrived.wait()
        assert sink.written[-1].through == "a"
        assert asyncio.get_running_loop().time() == pytest.approx(0.5)


async def test_a_long_journal_is_written_less_often_without_a_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "PACE_BYTES_PER_S", 100)
    loop = asyncio.get_running_loop()
    async with writing(interval_s=0.5) as (journal, sink, _):
        journal.state.listed("k" * 4000)
        await sink.arrived.wait()
        assert loop.time() == pytest.approx(0.5)
        sink.arrived.clear()
        journal.state.listed("l")
        await sink.arrived.wait()
        assert loop.time() == pytest.approx(0.5 + 40, abs=0.1)
        journal.state.listed("m")
        await journal.flush()
        assert loop.time() == pytest.approx(0.5 + 40, abs=0.1)
        assert sink.written[-1].begun[-1] == "m"


async def test_writes_of_one_key_keep_the_rate_that_the_store_accepts() -> None:
    """Google Cloud Storage throttles more than one write a second, after a few at once."""
    async with writing(rewrite_s=1.0) as (journal, sink, _):
        ends = []
        for number in range(6):
            journal.state.listed(f"{number}")
            await journal.flush()
            ends.append(asyncio.get_running_loop().time())
        assert ends == pytest.approx([0, 0, 0, 0, 1, 2])
        await asyncio.sleep(60)
        journal.state.listed("x")
        journal.state.listed("y")
        await journal.flush()
        assert asyncio.get_running_loop().time() == pytest.approx(62)
        assert sink.written[-1].begun[-1] == "y"


async def test_many_committed_bytes_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "UNWRITTEN_BYTES", 100)
    async with writing() as (journal, sink, _):
        journal.state.listed("a")
        journal.state.committed(DoneRow("a", "e", "v", 99, 2))
        await asyncio.sleep(1.0)
        assert sink.written == []
        journal.state.listed("b")
        journal.state.committed(DoneRow("b", "e", "v", 1, 2))
        await asyncio.sleep(0.0)
        await sink.arrived.wait()
        assert sink.written[-1].through == "b"
        assert asyncio.get_running_loop().time() == pytest.approx(1.0)


async def test_every_flush_fails_when_the_journal_cannot_be_written() -> None:
    async with writing() as (journal, sink, task):
        sink.error = StaleEpoch("over")
        flushes = [asyncio.create_task(journal.flush()) for _ in range(3)]
        for result in await asyncio.gather(*flushes, return_exceptions=True):
            assert isinstance(result, StaleEpoch)
        assert isinstance(task.exception(), StaleEpoch)
        with pytest.raises(StaleEpoch):
            await journal.flush()


async def test_a_write_beside_which_a_newer_epoch_is_found_is_no_success() -> None:
    async with writing() as (journal, sink, _):
        await journal.flush()
        sink.newer = StaleEpoch("epoch 3 has a journal")
        with pytest.raises(StaleEpoch, match="epoch 3"):
            await journal.confirm(is_complete=True)
        assert sink.looks == len(sink.written) == 2, "each write looks"


async def test_a_flush_ends_when_the_writer_is_cancelled() -> None:
    async with writing() as (journal, sink, task):
        sink.gate.clear()
        flush = asyncio.create_task(journal.flush())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(GatewayError):
            await flush


async def test_the_first_journal_of_an_epoch_repeats_the_inherited_one() -> None:
    old = Journal(
        KEY, 1, "r", 5, writer="old", sequence=9, is_sealed=True,
        through="k", begun=("b", "x"), uploads=(upload("x", "id"),),
    )  # fmt: skip
    async with writing(old) as (journal, sink, _):
        await journal.flush()
        assert sink.written == [
            replace(IDENTITY, sequence=1, through="k", begun=old.begun, uploads=old.uploads)
        ]


async def test_the_age_of_the_last_write_is_known() -> None:
    async with writing() as (journal, _, _):
        for key in ("a", "b"):
            journal.state.listed(key)
            await journal.flush()
            await asyncio.sleep(40.0)
        assert journal.last_write() == {"journal_etag": "e2", "written_s_ago": 40.0}


async def test_a_heartbeat_is_written_though_nothing_happens() -> None:
    """Else the sweep would take a slow transfer for one that nobody continues."""
    async with writing() as (_, sink, _):
        await asyncio.sleep(writer.HEARTBEAT_S - 1.0)
        assert sink.written == []
        await asyncio.sleep(2 * writer.HEARTBEAT_S + 2.0)
        assert sink.etags == [None, "e1", "e2"]
    assert writer.HEARTBEAT_S <= 3600


async def test_the_totals_are_written_with_every_journal() -> None:
    totals = Totals(seconds=1.0)
    async with writing(totals=lambda: totals) as (journal, sink, _):
        journal.state.listed("a")
        await journal.flush()
        assert sink.written[-1].totals == totals
        totals = Totals(2.0, (SentRow("a", "b", 7),))
        journal.state.totals_changed()
        await journal.flush()
        assert sink.written[-1].totals == totals
