from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from skyplane_gateway.errors import GatewayError, StaleEpoch, StoreUnavailable
from skyplane_gateway.journal import writer
from skyplane_gateway.journal.document import DoneRow, Journal, LostRow, UploadRow
from skyplane_gateway.journal.totals import SentRow, Totals
from skyplane_gateway.journal.writer import JournalKeeper, inheritance, take_over

KEY = "ab" * 16
IDENTITY = Journal(KEY, 2, "r", 1, writer="w")


def upload(key: str, upload_id: str | None = None) -> UploadRow:
    return UploadRow(key, upload_id, key, "v", 1, 1)


class Shelf:
    """A sink that takes journals, as slowly and as badly as a test wants."""

    def __init__(self) -> None:
        self.written: list[Journal] = []
        self.etags: list[str | None] = []
        self.deleted = 0
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()
        self.under_way = 0

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.under_way += 1
        assert self.under_way == 1, "two calls at once"
        try:
            await self.gate.wait()
            if self.errors:
                raise self.errors.pop(0)
            if verb == "delete_journals":
                self.deleted += 1
                return {}
            self.written.append(Journal.from_dict(arguments["journal"]))
            self.etags.append(arguments["if_match"])
            self.arrived.set()
            return {"etag": f"e{len(self.written)}"}
        finally:
            self.under_way -= 1


class Kept:
    """A keeper at work, with an interval so long that only `flush` and bytes hurry it."""

    def __init__(
        self, inherited: Journal | None = None, interval_s: float = 3600.0, **more: Any
    ) -> None:
        self.shelf = Shelf()
        self.keeper = JournalKeeper(
            self.shelf.call, "out/", IDENTITY, inherited, interval_s=interval_s, **more
        )

    async def __aenter__(self) -> Kept:
        self.task = asyncio.create_task(self.keeper.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_BACKOFF_S", 0.0)


def test_a_flush_returns_once_what_happened_is_written() -> None:
    async def scenario() -> None:
        async with Kept() as kept:
            kept.keeper.listed("a")
            kept.keeper.intent(upload("a"))
            await kept.keeper.flush()
            assert kept.shelf.written[-1].uploads == (upload("a"),)
            count = len(kept.shelf.written)
            await kept.keeper.flush()
            assert len(kept.shelf.written) == count

    asyncio.run(scenario())


def test_what_happens_during_a_write_goes_together_with_the_next() -> None:
    async def scenario() -> None:
        async with Kept() as kept:
            kept.shelf.gate.clear()
            flushes = [asyncio.create_task(kept.keeper.flush())]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for number in range(20):
                kept.keeper.intent(upload(f"{number:02}"))
                flushes.append(asyncio.create_task(kept.keeper.flush()))
                await asyncio.sleep(0)
            kept.shelf.gate.set()
            await asyncio.gather(*flushes)
            assert len(kept.shelf.written) == 2
            assert len(kept.shelf.written[-1].uploads) == 20
            assert kept.shelf.etags == [None, "e1"]
            assert [row.sequence for row in kept.shelf.written] == [1, 2]

    asyncio.run(scenario())


def test_events_are_written_in_time_though_nobody_waits() -> None:
    async def scenario() -> None:
        async with Kept(interval_s=0.0) as kept:
            kept.keeper.listed("a")
            kept.keeper.committed(DoneRow("a", "e", "v", 1, 2))
            await kept.shelf.arrived.wait()
            assert kept.shelf.written[-1].through == "a"

    asyncio.run(scenario())


def test_a_long_journal_is_written_more_seldom_but_for_who_waits(
    virtual: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PACE_BYTES_PER_S", 100)

    async def scenario() -> None:
        async with Kept(interval_s=0.5) as kept:
            loop = asyncio.get_running_loop()
            kept.keeper.listed("k" * 4000)
            await kept.shelf.arrived.wait()
            assert loop.time() == pytest.approx(0.5)
            kept.shelf.arrived.clear()
            kept.keeper.listed("l")
            await kept.shelf.arrived.wait()
            assert loop.time() == pytest.approx(0.5 + 40, abs=0.1)
            kept.keeper.listed("m")
            await kept.keeper.flush()
            assert loop.time() == pytest.approx(0.5 + 40, abs=0.1)
            assert kept.shelf.written[-1].begun[-1] == "m"

    virtual(scenario())


def test_many_bytes_are_written_down_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "UNWRITTEN_BYTES", 100)

    async def scenario() -> None:
        async with Kept() as kept:
            kept.keeper.listed("a")
            kept.keeper.committed(DoneRow("a", "e", "v", 99, 2))
            for _ in range(5):
                await asyncio.sleep(0)
            assert kept.shelf.written == []
            kept.keeper.listed("b")
            kept.keeper.committed(DoneRow("b", "e", "v", 1, 2))
            await kept.shelf.arrived.wait()
            assert kept.shelf.written[-1].through == "b"

    asyncio.run(scenario())


def test_a_write_goes_again_while_that_can_help() -> None:
    async def scenario() -> None:
        async with Kept() as kept:
            kept.shelf.errors = [StoreUnavailable("503")] * (writer.MAX_ATTEMPTS - 1)
            await kept.keeper.flush()
            assert len(kept.shelf.written) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "errors",
    [[StaleEpoch("over")], [StoreUnavailable("503")] * writer.MAX_ATTEMPTS],
)
def test_a_journal_that_cannot_be_written_fails_whoever_waits(errors: list[Exception]) -> None:
    async def scenario() -> None:
        async with Kept() as kept:
            kept.shelf.errors = list(errors)
            waiting = [asyncio.create_task(kept.keeper.flush()) for _ in range(3)]
            for result in await asyncio.gather(*waiting, return_exceptions=True):
                assert type(result) is type(errors[0])
            assert type(kept.task.exception()) is type(errors[0])
            with pytest.raises(type(errors[0])):
                await kept.keeper.flush()

    asyncio.run(scenario())


def test_nobody_waits_for_a_keeper_that_was_stopped() -> None:
    async def scenario() -> None:
        async with Kept() as kept:
            kept.shelf.gate.clear()
            waiting = asyncio.create_task(kept.keeper.flush())
            await asyncio.sleep(0)
            kept.task.cancel()
            with pytest.raises(GatewayError):
                await waiting

    asyncio.run(scenario())


def test_the_first_writing_says_all_that_was_inherited() -> None:
    old = Journal(
        KEY, 1, "r", 5, writer="old", sequence=9, is_sealed=True,
        through="k", begun=("b", "x"), uploads=(upload("x", "id"),),
    )  # fmt: skip

    async def scenario() -> None:
        async with Kept(old) as kept:
            await kept.keeper.flush()
            assert kept.shelf.written == [
                replace(IDENTITY, sequence=1, through="k", begun=old.begun, uploads=old.uploads)
            ]
            assert kept.keeper.uploads == old.uploads

    asyncio.run(scenario())


def test_of_many_journals_the_newest_of_the_rule_is_inherited_and_the_rest_is_stray() -> None:
    def row(epoch: int, rule: str, *uploads: UploadRow) -> Journal:
        return replace(IDENTITY, epoch=epoch, rule=rule, uploads=uploads)

    journals = [
        row(1, "r", upload("a", "1"), upload("b", "1"), upload("gone")),
        row(2, "r", upload("a", "1"), upload("b", "2")),
        row(3, "other", upload("c", "3"), upload("b")),
    ]
    found = inheritance(journals, "r")
    assert found.journal == journals[1]
    assert set(found.strays) == {upload("b", "1"), upload("gone"), upload("c", "3")}
    alone = inheritance(journals, "another")
    assert alone.journal is None
    assert {(stray.key, stray.upload_id) for stray in alone.strays} >= {("a", "1"), ("c", "3")}
    assert inheritance([], "r").strays == ()
    # Of several uploads of one key that the newest names, the last goes on.
    again = Journal("ab" * 16, 1, "r", 1, uploads=(upload("a", "1"), upload("a")))
    assert inheritance([again], "r").strays == (upload("a", "1"),)


def test_requests_without_an_answer_are_those_that_nobody_has_looked_for() -> None:
    """The newest journal of the rule had inherited what was left of older ones."""
    settled, left, other = (LostRow("a", since, since + 1) for since in (1.0, 2.0, 9.0))
    journals = [
        replace(IDENTITY, epoch=1, lost=(settled,)),
        replace(IDENTITY, epoch=2, lost=(left,)),
        replace(IDENTITY, epoch=3, rule="other", lost=(other, left)),
    ]
    found = inheritance(journals, "r")
    assert (found.strays, found.lost) == ((), (left, other))
    assert found.journal is not None
    assert found.journal.lost == found.lost
    assert inheritance(journals, "another").lost == (settled, left, other)


@pytest.mark.parametrize(
    ("rules", "unreadable", "named"),
    [
        ((), [1], ["1 is bad"]),
        (("r",), [], []),
        (("r",), [2], ["2 is bad"]),
        (("r", "other"), [3], ["3 is bad"]),
        # Whoever wrote the newest of the rule had read it.
        (("other", "r"), [1], []),
        (("r", "other"), [2], ["2 is bad"]),
        (("other", "other"), [3, 1], ["1 is bad", "3 is bad"]),
    ],
)
def test_an_unreadable_journal_counts_unless_one_of_the_rule_is_newer(
    rules: tuple[str, ...], unreadable: list[int], named: list[str]
) -> None:
    epochs = [epoch for epoch in range(1, 9) if epoch not in unreadable]
    rows = [
        replace(IDENTITY, epoch=epoch, rule=rule)
        for epoch, rule in zip(epochs, rules, strict=False)
    ]

    async def call(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        assert (verb, arguments["seal_before"]) == ("read_journals", 9)
        return {
            "journals": [row.to_dict() for row in rows],
            "unreadable": {str(epoch): f"{epoch} is bad" for epoch in unreadable},
        }

    found = asyncio.run(take_over(call, "out/", KEY, 9, "r"))
    assert list(found.unreadable) == named
    # An older journal may say of an object what is true no more.
    assert (found.journal is not None) is ("r" in rules and not named)


def test_a_store_that_hangs_is_not_asked_for_a_quarter_of_an_hour(
    virtual: Callable[[Any], Any],
) -> None:
    """Each attempt is patient itself: the next one would begin after two minutes."""
    attempts = 0

    async def call(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(130)
        raise StoreUnavailable("no answer")

    async def scenario() -> None:
        keeper = JournalKeeper(call, "out/", IDENTITY, None, interval_s=0.5)
        keeper.listed("a")
        keeper.intent(upload("a"))
        with pytest.raises(StoreUnavailable, match="no answer"):
            await keeper.run()

    virtual(scenario())
    assert attempts == 1


def test_it_tells_how_long_ago_it_was_written(virtual: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        async with Kept() as kept:
            kept.keeper.listed("a")
            await kept.keeper.flush()
            await asyncio.sleep(30.0)
            kept.keeper.listed("b")
            await kept.keeper.flush()
            await asyncio.sleep(40.0)
            assert kept.keeper.last_writing() == {"journal_etag": "e2", "written_s_ago": 40.0}

    virtual(scenario())


def test_a_journal_is_written_now_and_then_although_nothing_happens() -> None:
    """Else a sweep would take a transfer that is slow for one that nobody goes on with."""

    async def scenario() -> None:
        async with Kept(heartbeat_s=0.001) as kept:
            for count in (1, 2, 3):
                kept.shelf.arrived.clear()
                await kept.shelf.arrived.wait()
                assert len(kept.shelf.written) >= count
            assert kept.shelf.etags[:3] == [None, "e1", "e2"]

    asyncio.run(scenario())


def test_nothing_is_written_before_a_heartbeat_is_over() -> None:
    async def scenario() -> None:
        async with Kept() as kept:
            await asyncio.sleep(0)
            assert kept.shelf.written == []

    asyncio.run(scenario())
    assert writer.HEARTBEAT_S <= 3600


def test_what_was_sent_is_written_with_whatever_is_and_on_its_own() -> None:
    async def scenario() -> None:
        totals = Totals(seconds=1.0)
        async with Kept(interval_s=0.0, totals=lambda: totals) as kept:
            kept.keeper.listed("a")
            await kept.keeper.flush()
            assert kept.shelf.written[-1].totals == totals
            totals = Totals(2.0, (SentRow("a", "b", 7),))
            kept.keeper.moved()
            kept.shelf.arrived.clear()
            await kept.shelf.arrived.wait()
            assert kept.shelf.written[-1].totals == totals

    asyncio.run(scenario())
