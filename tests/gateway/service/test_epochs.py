"""Leads of two epochs, or two of one, that do not hear of each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from skyplane_gateway.config import MIB
from skyplane_gateway.errors import StaleEpoch, UnknownTransfer
from skyplane_gateway.journal.document import (
    DoneRow,
    FailedRow,
    Journal,
    UploadRow,
    encode_journal,
    journal_key,
    rule_digest,
)
from skyplane_gateway.journal.store import JournalFolder
from skyplane_gateway.journal.totals import SentRow, Totals
from skyplane_gateway.lead.peers import RemoteSource
from skyplane_gateway.selection.rules import JOURNAL_FOLDER
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.memory import _buckets

SMALL = {"assembly_mib": 32, "readers": 8, "store_threads": 24}
KEY = "ab" * 16


async def attach(
    fleet: Any, nodes: dict[str, str], source: Any, destination: Any, epoch: int
) -> None:
    """As a fail-over does: only the ends that answer the orchestrator."""
    for node, side in nodes.items():
        await asyncio.to_thread(
            fleet.client(node).attach,
            KEY,
            epoch=epoch,
            side=side,
            store=source if side == "source" else destination,
            credentials=None,
            verify="stored",
        )


def test_a_source_tells_a_lead_of_an_older_epoch_nothing(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {f"o{i}": bytes(MIB) for i in range(4)})
        async with fleet_of(kit.route(0, "a", "b"), kit.route(1, "c", "d"), **SMALL) as fleet:
            await fleet.attach(KEY, source, destination)
            await attach(fleet, {"c": "source", "d": "sink", "b": "sink"}, source, destination, 2)
            spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
            await asyncio.to_thread(fleet.client("c").submit, KEY, epoch=2, spec=spec)
            lead = fleet.service("c").leads.transfer(KEY)
            await fleet.until(lambda: lead.status()["state"] != "running")
            old = RemoteSource("c", fleet.service("a")._client("c"), KEY, 1)
            with pytest.raises((StaleEpoch, UnknownTransfer)):
                # It is told of epoch 2's chunks, and takes them for its own of that number.
                await old.outcomes(0, 0.0)
            old.close()

    asyncio.run(scenario())


def test_the_end_of_an_old_epoch_does_not_take_the_ends_from_the_new_one(
    fleet_of: Any, kit: Any, gate: Callable[..., Any]
) -> None:
    """An orchestrator that was slow to conclude epoch 1 releases, while epoch 2 runs."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {f"o{i}": bytes(MIB) for i in range(4)})
        held = gate(destination)
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await fleet.attach(KEY, source, destination, epoch=2)
            await fleet.submit(KEY, kit.copy_spec(source, destination, chunk_bytes=MIB), epoch=2)
            await fleet.until(lambda: held.waiting > 0)
            # What `Steering.release(SubmittedTransfer(KEY, epoch=1, ...))` does.
            releases = [
                asyncio.create_task(asyncio.to_thread(fleet.client(node).release, KEY, 1))
                for node in ("a", "b")
            ]
            await asyncio.sleep(0.2)
            held.open()
            await asyncio.gather(*releases)
            status = await fleet.ended(KEY)
            assert (status["state"], status["error"]) == ("succeeded", None)

    asyncio.run(scenario())


def test_an_old_lead_reports_no_success_over_what_is_not_there(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sides of a control network that is cut: a and b; c, d and the second orchestrator.
    All reach the stores and a reaches c. c is attached for epoch 2 and leads it, with one
    object more in its listing, and counts its chunks from one as a did. a takes the outcomes
    of c's chunks for those of its own, and says `succeeded` over an object that is nowhere."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        names = [f"o{i}" for i in range(2)]
        kit.fill(source, {name: bytes([65 + i]) * MIB for i, name in enumerate(names)})
        gates = {name: threading.Event() for name in ("old", "new", "last")}
        arrived: list[str] = []
        is_new = threading.Event()

        class Held:
            def __init__(self, store: Any) -> None:
                self._store = store

            def __getattr__(self, name: str) -> Any:
                return getattr(self._store, name)

            def put(self, key: str, *rest: Any, **more: Any) -> Any:
                if JOURNAL_FOLDER not in key:
                    arrived.append(key)
                    gates["new" if is_new.is_set() else "old"].wait(60)
                    if key == names[-1]:
                        gates["last"].wait(60)  # of both epochs: it is not written before the end
                return self._store.put(key, *rest, **more)

        monkeypatch.setattr(
            "skyplane_gateway.endpoints.open_store",
            lambda spec, credentials=None: (
                Held(open_store(spec, credentials))
                if spec == destination
                else open_store(spec, credentials)
            ),
        )
        routes = (kit.route(0, "a", "b", share_gbps=1e-6), kit.route(1, "c", "d"))
        async with fleet_of(*routes, **SMALL) as fleet:
            await fleet.attach(KEY, source, destination)
            spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
            await asyncio.to_thread(fleet.client("a").submit, KEY, epoch=1, spec=spec)
            old = fleet.service("a").leads.transfer(KEY)
            await fleet.until(lambda: len(arrived) >= len(names))
            kit.fill(source, {"new": bytes(MIB)})
            is_new.set()
            await attach(fleet, {"c": "source", "d": "sink"}, source, destination, 2)
            await asyncio.to_thread(fleet.client("c").submit, KEY, epoch=2, spec=spec)
            await fleet.until(lambda: len(arrived) >= 2 * len(names) + 1)
            gates["old"].set()
            await asyncio.sleep(0.3)
            gates["new"].set()
            await fleet.until(lambda: old.status()["state"] != "running")
            status, rows = old.status(), old.report.page(0)["rows"]
            there = sorted(kit.content(destination))
            gates["last"].set()
            copied = {row["destination"] for row in rows if row["state"] == "copied"}
            assert status["state"] != "succeeded" or copied <= set(there), (copied, there)

    asyncio.run(scenario())


def test_two_leads_of_one_epoch_do_not_share_chunk_numbers(
    fleet_of: Any, kit: Any, gate: Callable[..., Any]
) -> None:
    """Two orchestrators fail over at once; to each the other's new lead is silent, and the ends
    are attached but not used yet, so both begin epoch 2: at a and at c."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {f"o{i}": bytes(MIB) for i in range(8)})
        held = gate(destination)
        spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
        async with fleet_of(kit.route(0, "a", "b"), kit.route(1, "c", "d"), **SMALL) as fleet:
            await fleet.attach(KEY, source, destination, epoch=2)
            await fleet.attach(KEY, source, destination, epoch=2)
            await asyncio.to_thread(fleet.client("a").submit, KEY, epoch=2, spec=spec)
            await fleet.until(lambda: held.waiting == 8)
            kit.fill(source, {f"new{i}": bytes([7]) * MIB for i in range(4)})
            for i in range(8):
                open_store(source).delete(f"o{i}")
            await asyncio.to_thread(fleet.client("c").submit, KEY, epoch=2, spec=spec)
            await asyncio.sleep(0.3)
            held.open()
            second = fleet.service("c").leads.transfer(KEY)
            await fleet.until(lambda: second.status()["state"] != "running")
            rows = [(r["destination"], r["state"]) for r in second.report.page(0)["rows"]]
            there = set(kit.content(destination))
            copied = {key for key, state in rows if state == "copied"}
            assert second.status()["state"] != "succeeded" or copied <= there

    asyncio.run(scenario())


def test_a_permanent_failure_leaves_no_upload_of_an_earlier_epoch(fleet_of: Any, kit: Any) -> None:
    """It has no resume handle and its status names no open upload, but one is open."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
        store = open_store(destination)
        row = UploadRow("z", store.create_upload("z"), "z", "v", 3 * MIB, MIB)
        past = Journal(KEY, 1, rule_digest(spec), MIB, writer="w", sequence=1, uploads=(row,))
        JournalFolder(store, "", KEY).write(past, None)
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await fleet.attach(KEY, source, destination, epoch=2)
            await fleet.submit(KEY, spec, epoch=2)
            status = await fleet.ended(KEY)
            assert (status["state"], status["error"]["is_permanent"]) == ("failed", True)
            named = [upload["key"] for upload in status["open_uploads"]]
            assert kit.uploads(destination) == named

    asyncio.run(scenario())


def test_an_upload_of_an_object_that_goes_whole_now_is_not_forgotten(
    fleet_of: Any, kit: Any
) -> None:
    """Gone on with larger chunks; another object fails, so that the transfer may be resumed."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        listed = kit.fill(source, {"a": b"1", "z": bytes(2 * MIB)})
        store = kit.fill(destination, {"a": b"there"})
        spec = kit.copy_spec(source, destination, chunk_bytes=4 * MIB, conflict="fail")
        etag = listed.head("z").etag
        row = UploadRow("z", store.create_upload("z"), "z", etag, 2 * MIB, MIB)
        past = Journal(KEY, 1, rule_digest(spec), MIB, writer="w", sequence=1, uploads=(row,))
        journals = JournalFolder(store, "", KEY)
        journals.write(past, None)
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await fleet.attach(KEY, source, destination, epoch=2)
            await fleet.submit(KEY, spec, epoch=2)
            status = await fleet.ended(KEY)
            assert (status["copied"], status["failed"], status["open_uploads"]) == (1, 1, [])
            newest = kit.journals(destination)[-1]
            assert newest.epoch == 2
            named = {upload.key for upload in newest.uploads}
            assert set(kit.uploads(destination)) <= named

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("conflict", "verify", "state"),
    [
        ("skip", "stored", "failed"),
        ("replace-if-newer", "stored", "failed"),
        ("replace-if-different", "reread", "failed"),
        ("skip", "none", "succeeded"),
        ("replace", "stored", "succeeded"),
        ("fail", "stored", "failed"),
    ],
)
def test_by_a_journal_that_cannot_be_read_nothing_is_kept_unseen(
    fleet_of: Any, kit: Any, conflict: str, verify: str, state: str
) -> None:
    """It may have said that the object, of the same size, is not to be taken for well."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"a": b"right"})
        there = kit.fill(destination, {"a": b"wrong"})
        key = journal_key("", KEY, 1)
        spec = kit.copy_spec(source, destination, conflict=conflict, verify=verify)
        failed = (FailedRow("a", "permission-denied"),)
        past = Journal(KEY, 1, rule_digest(spec), MIB, failed=failed, failed_count=1)
        # One letter is another: still the journal of something.
        there.put(key, encode_journal(past).replace(b'"key":"a"', b'"key":"b"'))
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:

            async def ended(epoch: int) -> Any:
                await fleet.attach(KEY, source, destination, epoch=epoch, verify=verify)
                await fleet.submit(KEY, spec, epoch=epoch)
                return await fleet.ended(KEY)

            status = await ended(2)
            assert status["state"] == state
            if conflict == "fail":
                assert status["error"]["code"] == "objects-failed"
                return
            if state == "succeeded":
                expected = b"right" if conflict == "replace" else b"wrong"
                assert kit.content(destination)["a"] == expected
                return
            error = status["error"]
            assert (error["code"], error["is_permanent"]) == ("journal-unreadable", True)
            assert key in error["message"]
            assert [row.key for row in there.list("")] == [key, "a"]
            # As its message says.
            there.delete("a")
            there.delete(key)
            assert (await ended(3))["state"] == "succeeded"
            assert kit.content(destination) == {"a": b"right"}

    asyncio.run(scenario())


@pytest.mark.parametrize(("conflict", "expected"), [("replace", b"right"), ("fail", b"wrong")])
def test_by_an_older_journal_nobody_goes_on_where_a_newer_one_cannot_be_read(
    fleet_of: Any, kit: Any, conflict: str, expected: bytes
) -> None:
    """It says that the object had ended; the newer one may have said that it failed since."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"a": b"right"})
        there = kit.fill(destination, {"a": b"wrong"})
        spec = kit.copy_spec(source, destination, conflict=conflict)
        row = DoneRow("a", there.head("a").etag, open_store(source).head("a").etag, 5, 1)
        past = Journal(KEY, 1, rule_digest(spec), MIB, through="z", done=(row,))
        JournalFolder(there, "", KEY).write(past, None)
        there.put(journal_key("", KEY, 2), b"{")
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await fleet.attach(KEY, source, destination, epoch=3)
            await fleet.submit(KEY, spec, epoch=3)
            status = await fleet.ended(KEY)
            assert status["copied_earlier"] == 0
            assert status["state"] == ("succeeded" if conflict == "replace" else "failed")
            assert kit.content(destination) == {"a": expected}

    asyncio.run(scenario())


def test_an_end_that_slept_through_a_change_of_lead_does_no_harm(fleet_of: Any, kit: Any) -> None:
    """Nobody attached it for the new epoch. What a source sent would be refused by its sinks
    in the name of the old one, and the new lead take itself for succeeded; a sink obeys the
    new lead, and from then on the old one no more."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {f"o{i}": bytes(MIB) for i in range(8)})
        routes = (kit.route(0, "a", "b"), kit.route(1, "c", "b"), kit.route(2, "c", "d"))
        async with fleet_of(*routes, **SMALL) as fleet:
            await fleet.attach(KEY, source, destination, epoch=1)
            await attach(fleet, {"c": "source", "b": "sink"}, source, destination, 2)
            spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
            await asyncio.to_thread(fleet.client("c").submit, KEY, epoch=2, spec=spec)
            lead = fleet.service("c").leads.transfer(KEY)
            await fleet.until(lambda: lead.status()["state"] != "running")
            assert lead.status()["error"] is None
            assert lead.status()["delivered_bytes"]["0"] == 0
            with pytest.raises(UnknownTransfer):
                fleet.service("a").endpoints.source(KEY, 2)
            verb = {"key": "o0"}
            asking = fleet.service("c")._client("d")
            await asyncio.to_thread(asking.store_verb, KEY, 2, "head", verb)
            with pytest.raises(StaleEpoch):
                await asyncio.to_thread(asking.store_verb, KEY, 1, "head", verb)
            asking.close()

    asyncio.run(scenario())


def test_a_new_epoch_knows_what_those_before_it_have_come_to(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {f"o{i}": bytes(MIB) for i in range(4)})
        objects = _buckets[source.bucket].objects
        info = replace(objects["o1"].info, not_carried=("tags",))
        objects["o1"] = replace(objects["o1"], info=info)
        there = kit.fill(destination, {"o2": b"a stranger's"})
        spec = kit.copy_spec(source, destination, chunk_bytes=MIB, conflict="fail")
        async with fleet_of(kit.route(0, "a", "r", "b"), **SMALL) as fleet:
            statuses = []
            for epoch in (1, 2, 3):
                await fleet.attach(KEY, source, destination, epoch=epoch)
                await fleet.submit(KEY, spec, epoch=epoch)
                statuses.append(await fleet.ended(KEY))
                if epoch == 2:
                    there.delete("o2")
            first, second, third = statuses
            assert [status["copied"] for status in statuses] == [3, 3, 4]
            assert [status["copied_earlier"] for status in statuses] == [0, 3, 3]
            assert first["earlier"] == Totals().to_dict()
            sent = [
                {"src": "a", "dst": "r", "size_bytes": 3 * MIB},
                {"src": "r", "dst": "b", "size_bytes": 3 * MIB},
            ]
            assert second["earlier"]["sent"] == third["earlier"]["sent"] == sent
            assert second["delivered_bytes"] == {"0": 0}
            assert 0 < second["earlier"]["seconds"] < third["earlier"]["seconds"]
            assert second["earlier"]["seconds"] <= first["seconds"]
            for status in statuses:
                assert (status["not_carried"], status["not_carried_by_name"]) == (1, {"tags": 1})

    asyncio.run(scenario())


def test_the_journal_tells_of_bytes_inside_a_large_object(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lead that is lost there has sent much, and no object has ended since."""
    held = threading.Event()

    class Held:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def put_part(self, key: str, upload_id: str, number: int, *rest: Any, **more: Any) -> Any:
            if number == 4:
                held.wait(60)
            return self._store.put_part(key, upload_id, number, *rest, **more)

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"large": bytes(4 * MIB)})
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await fleet.attach(KEY, source, destination)
            await fleet.submit(KEY, kit.copy_spec(source, destination, chunk_bytes=MIB))
            sent = (SentRow("a", "b", 3 * MIB),)
            await fleet.until(
                lambda: any(row.totals.sent == sent for row in kit.journals(destination))
            )
            held.set()
            assert (await fleet.ended(KEY))["state"] == "succeeded"

    monkeypatch.setattr("skyplane_gateway.lead.transfer._TOTALS_S", 0.01)
    monkeypatch.setattr(
        "skyplane_gateway.endpoints.open_store",
        lambda spec, credentials=None: Held(open_store(spec, credentials)),
    )
    asyncio.run(scenario())
