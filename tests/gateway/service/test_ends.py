"""How transfers end: gateways leave, are stopped, polled and kept alive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import (
    buckets,
    content,
    copy_spec,
    journals,
    named_uploads,
    route,
    uploads,
)
from tests.memory_store import MemoryStore

from skyplane_gateway.common.errors import (
    GatewayDraining,
    PermissionDenied,
    StoreUnavailable,
    UnknownTransfer,
)
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.config import MIB, AttachOrder
from skyplane_gateway.transfer_sides import TransferSides

# Gateways that are told to end by their machine (SIGTERM, a spot notice) in mid-transfer.


CHUNK = MIB
KEY = "57" * 16
BODIES = {f"large{n}": bytes([n]) * (5 * MIB) for n in range(4)} | {
    f"small{n}": bytes([n]) * 100 for n in range(20)
}


async def leave(fleet: Any, node: str) -> None:
    """As SIGTERM does."""
    fleet.service(node).request_leave("SIGTERM")
    await fleet.gateways[node].close()


async def begin(fleet: Any, gate: Any) -> tuple[Any, Any]:
    """A transfer with its writes under way: destination and what it copies."""
    source, destination = buckets(BODIES)
    await fleet.attach(KEY, source, destination)
    spec = copy_spec(source, destination, chunk_bytes=CHUNK)
    await fleet.submit(KEY, spec)
    await fleet.until(lambda: gate.waiting >= 4)
    await fleet.until(lambda: set(uploads(destination)) == named_uploads(destination) != set())
    return destination, spec


async def test_a_leaving_lead_is_draining_and_another_source_resumes(
    fleet_of: Any, gate: Any
) -> None:
    routes = (route(0, "a", "b"), route(1, "c", "b"))
    async with fleet_of(*routes, over_tls=True) as fleet:
        destination, spec = await begin(fleet, gate)
        fleet.service("a").request_leave("SIGTERM")
        for call in (
            lambda: fleet.client("a").transfer_status(KEY),
            fleet.client("a").status,
        ):
            with pytest.raises(GatewayDraining, match="SIGTERM"):
                await asyncio.to_thread(call)
        gate.open()
        await fleet.gateways["a"].close()
        assert named_uploads(destination) == set(uploads(destination)) != set()

        next_lead, sink = fleet.client("c"), fleet.client("b")
        for client, order in (
            (next_lead, AttachOrder(2, "source", spec.source)),
            (sink, AttachOrder(2, "sink", spec.destination)),
        ):
            await asyncio.to_thread(client.attach, KEY, order)
        await asyncio.to_thread(next_lead.submit, KEY, epoch=2, spec=spec)
        lead = fleet.service("c").leads.transfer(KEY)
        await fleet.until(lambda: lead.status()["state"] != "running")
        assert lead.status()["state"] == "succeeded"
    assert content(destination) == BODIES


async def test_a_leaving_gateway_does_not_wait_for_a_hanging_store(
    fleet_of: Any, gate: Any
) -> None:
    """A store that does not answer must not hold it up: the machine is gone soon."""

    routes = (route(0, "a", "b"), route(1, "a", "d"))
    async with fleet_of(*routes, over_tls=True) as fleet:
        destination, _ = await begin(fleet, gate)
        service = fleet.service("d")
        await fleet.until(lambda: len(service.sink._writes) > 0)
        service.request_leave("SIGTERM")
        await service.leave(within_s=0.1)
        gate.open()
        assert (await fleet.ended(KEY))["state"] == "succeeded"
    assert content(destination) == BODIES


async def test_a_gateway_that_ends_during_a_submit_begins_no_transfer(
    fleet_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would stop it: it would end as cancelled, and take its journal along."""
    asked, answer = asyncio.Event(), asyncio.Event()
    store_verb = TransferSides.store_verb

    async def answers_late(
        endpoints: TransferSides, key: str, epoch: int, verb: str, arguments: Any
    ) -> Any:
        asked.set()
        await answer.wait()
        return await store_verb(endpoints, key, epoch, verb, arguments)

    async with fleet_of(over_tls=True) as fleet:
        source, destination = buckets({"k": b"v"})
        await fleet.attach(KEY, source, destination)
        monkeypatch.setattr(TransferSides, "store_verb", answers_late)
        submitting = asyncio.create_task(fleet.submit(KEY, copy_spec(source, destination)))
        await asked.wait()
        fleet.service("a").request_leave("SIGTERM")
        await fleet.service("a").leave()
        answer.set()
        with pytest.raises(GatewayDraining, match="takes no"):
            await submitting
        with pytest.raises(UnknownTransfer):
            fleet.service("a").leads.transfer(KEY)


async def test_an_upload_that_a_leaving_sink_may_have_begun_is_aborted(
    fleet_of: Any, wrap_stores: Any
) -> None:
    begun: list[str] = []
    go_on = threading.Event()

    def lose_first_answer(original: Any, key: str, *arguments: Any) -> str:
        upload_id: str = original(key, *arguments)
        begun.append(upload_id)
        if len(begun) == 1:
            go_on.wait(60)
            raise StoreUnavailable("the connection broke before the answer")
        return upload_id

    wrap_stores(create_upload=lose_first_answer)
    source, destination = buckets({"large": b"x" * (5 * MIB)})
    async with fleet_of(route(0, "a", "b"), route(1, "a", "d"), over_tls=True) as fleet:
        await fleet.begin(KEY, copy_spec(source, destination, chunk_bytes=CHUNK))
        await fleet.until(lambda: len(begun) == 1)
        (doomed,) = (n for n in ("b", "d") if fleet.service(n).endpoints.verb_threads._calls)
        leaving = asyncio.create_task(leave(fleet, doomed))
        await asyncio.sleep(0)
        go_on.set()
        await leaving
        assert (await fleet.ended(KEY))["state"] == "succeeded"
    assert uploads(destination) == []


# Polls that wait for the end of a transfer.


async def begin_one(fleet: Any, gate: Any) -> None:
    """A transfer of one object whose write waits."""
    source, destination = buckets({"a": b"x"})
    await fleet.begin(KEY, copy_spec(source, destination))
    await fleet.until(lambda: gate.waiting == 1)


def poll(fleet: Any, wait_s: float) -> asyncio.Task[dict[str, Any]]:
    client = fleet.client("a")
    return asyncio.create_task(asyncio.to_thread(client.transfer_status, KEY, wait_s=wait_s))


async def test_a_poll_waits_for_the_end(fleet_of: Any, gate: Any) -> None:
    async with fleet_of(over_tls=True) as fleet:
        await begin_one(fleet, gate)
        lead = fleet.service("a").leads.transfer(KEY)
        waiting, patient = poll(fleet, 60.0), asyncio.create_task(lead.wait_for_end(3600.0))
        gate.open()
        document = await waiting
        await patient
        assert (document["state"], document["copied"], document["waited"]) == ("succeeded", 1, True)
        assert (await poll(fleet, 60.0))["state"] == "succeeded", "an end is reported at once"


async def test_a_poll_answers_while_the_transfer_runs(fleet_of: Any, gate: Any) -> None:
    async with fleet_of() as fleet:
        await begin_one(fleet, gate)
        states = [await poll(fleet, wait_s) for wait_s in (0.01, 0.0)]
        assert [(row["state"], row["waited"]) for row in states] == [
            ("running", True),
            ("running", False),
        ]
        gate.open()
        await fleet.ended(KEY)


async def test_a_poll_that_waits_hears_that_its_lead_leaves(fleet_of: Any, gate: Any) -> None:
    async with fleet_of(over_tls=True) as fleet:
        await begin_one(fleet, gate)
        lease = fleet.service("a").lease
        lease.renew(1.0)
        waiting = poll(fleet, 60.0)
        await fleet.until(lambda: lease.remaining_s > 1.0)
        fleet.service("a").request_leave("SIGTERM")
        gate.open()
        await fleet.gateways["a"].close()
        with pytest.raises(GatewayDraining, match="SIGTERM"):
            await waiting


# A stopped transfer keeps what a resume needs.


@pytest.mark.parametrize(("goes_on", "code"), [(False, "stopped"), (True, "stale-epoch")])
async def test_the_next_epoch_resumes_a_stopped_transfer(
    fleet_of: Any, gate: Any, goes_on: bool, code: str
) -> None:
    """Where it goes on, others that follow it await the next epoch."""
    bodies = {f"o{number}": bytes([number]) * (5 * MIB) for number in range(4)}

    source, destination = buckets(bodies)
    spec = copy_spec(source, destination, chunk_bytes=CHUNK)
    async with fleet_of() as fleet:
        await fleet.begin(KEY, spec)
        await fleet.until(lambda: gate.waiting > 0)
        client = fleet.client("a")
        stopping = asyncio.create_task(
            asyncio.to_thread(client.stop, KEY, "it is too dear", goes_on=goes_on)
        )
        await fleet.until(lambda: fleet.service("a").leads.transfer(KEY)._stop_reason is not None)
        gate.open()
        await stopping
        status = await fleet.ended(KEY)
        assert status["state"] == "failed"
        assert status["error"]["code"] == code
        assert status["error"]["message"] == "it is too dear"
        assert status["error"]["is_permanent"] is goes_on
        assert status["open_uploads"] == []
        kept = uploads(destination)
        assert kept != []
        assert journals(destination) != []
        await asyncio.to_thread(client.stop, KEY, "once more")
        assert (
            fleet.service("a").leads.transfer(KEY).status()["error"]["message"] == "it is too dear"
        )

        await fleet.begin(KEY, spec, epoch=2)
        assert (await fleet.ended(KEY))["state"] == "succeeded"
        # Until the success is acknowledged, the next run must know of it.
        assert journals(destination) != []
        await fleet.heard(KEY, spec, epoch=2)
    assert content(destination) == bodies
    assert uploads(destination) == []
    assert journals(destination) == []


async def test_a_stop_changes_nothing_in_a_transfer_that_has_ended(fleet_of: Any) -> None:
    source, destination = buckets({"o": b"x"})
    async with fleet_of() as fleet:
        await fleet.begin(KEY, copy_spec(source, destination))
        await fleet.ended(KEY)
        for node in ("a", "b"):
            await asyncio.to_thread(fleet.client(node).stop, KEY, "it is too dear")
        assert fleet.service("a").leads.transfer(KEY).status()["state"] == "succeeded"


# What keeps the gateways of a fleet alive: the wiring of leases, keeper and lead.


async def test_a_listing_without_matches_is_progress(
    fleet_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Millions of keys that the filters leave out take longer than any lease."""
    source, destination = buckets()
    steps = threading.Semaphore(0)
    real = MemoryStore.list

    def slowly(store: MemoryStore, prefix: str, **more: Any) -> Iterator[ObjectInfo]:
        if store.spec.bucket != source.bucket:
            yield from real(store, prefix, **more)
            return
        for page in range(3):
            for number in range(1000):
                yield ObjectInfo(f"unwanted{page}{number:03}", 1, "e", 0.0)
            assert steps.acquire(timeout=20)

    monkeypatch.setattr(MemoryStore, "list", slowly)

    async with fleet_of() as fleet:
        spec = copy_spec(source, destination, include=("wanted",), allow_empty=True)
        await fleet.begin(KEY, spec)
        lead = fleet.service("a").leads.transfer(KEY)
        for looked_at in (1000, 2000, 3000):
            await fleet.until(lambda wanted=looked_at: lead.progress()[0] == wanted)
            steps.release()
        assert (await fleet.ended(KEY))["state"] == "succeeded"


async def test_a_poll_renews_the_lead_alone_and_a_submit_the_whole_fleet(fleet_of: Any) -> None:
    source, destination = buckets({"a": b"x"})

    settings = {"start_within_s": 900.0, "lease_s": 60.0}
    async with fleet_of(route(1, "a", "r", "b"), **settings) as fleet:

        def left_s(node: str) -> float:
            remaining: float = fleet.service(node).lease.remaining_s
            return remaining

        assert all(800 < left_s(node) <= 900 for node in ("a", "r", "b"))
        await fleet.attach(KEY, source, destination)
        assert left_s("a") > 800
        await fleet.submit(KEY, copy_spec(source, destination))
        assert all(left_s(node) <= 60 for node in ("a", "r", "b"))
        await fleet.ended(KEY)
        for node in ("a", "r", "b"):
            fleet.service(node).lease.renew(5.0)
        await asyncio.to_thread(fleet.client("a").transfer_status, KEY, renew=False)
        assert left_s("a") <= 5
        await asyncio.to_thread(fleet.client("a").transfer_status, KEY)
        assert left_s("a") > 5
        assert left_s("b") <= 5
        fleet.service("a").lease.renew(5.0)
        await asyncio.to_thread(fleet.client("a").report, KEY)
        assert left_s("a") > 5, "a report may have more pages than a lease has time for"
        assert left_s("b") <= 5


async def test_a_transfer_runs_while_a_lease_is_not_renewed_yet(fleet_of: Any) -> None:
    source, destination = buckets({"a": b"x"})
    async with fleet_of(route(1, "a", "r", "b")) as fleet:
        is_over = asyncio.Event()
        fleet.service("a").leads._renew_fleet = is_over.wait
        await fleet.attach(KEY, source, destination)
        submit = asyncio.create_task(fleet.submit(KEY, copy_spec(source, destination)))
        await fleet.until(lambda: content(destination) == {"a": b"x"})
        assert not submit.done(), "the caller gets its answer when the leases are renewed"
        is_over.set()
        assert (await submit)["joined"] is False
        assert (await fleet.ended(KEY))["state"] == "succeeded"


async def test_an_upload_that_may_not_be_looked_for_is_left_with_its_journal(
    fleet_of: Any, wrap_stores: Any
) -> None:
    """Its request had no answer: the store may have run it."""
    answers = [StoreUnavailable("the connection broke before the answer")]

    def create(original: Any, key: str, *arguments: Any) -> str:
        upload_id: str = original(key, *arguments)
        if answers:
            raise answers.pop()
        return upload_id

    def denied(*_: Any, **__: Any) -> Any:
        raise PermissionDenied("may not list uploads")

    wrap_stores(create_upload=create, list_uploads=denied)
    source, destination = buckets({"large": bytes(5 * MIB)})
    async with fleet_of() as fleet:
        status = await fleet.run(copy_spec(source, destination, chunk_bytes=CHUNK))
    assert (status["state"], status["copied"]) == ("succeeded", 1)
    assert uploads(destination) == ["large"]
    assert journals(destination) != []
