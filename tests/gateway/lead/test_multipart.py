"""Uploads that a request without an answer may have begun."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import pytest

from skyplane_gateway.errors import GatewayUnreachable, StoreUnavailable
from skyplane_gateway.journal.document import Journal, journal_key
from skyplane_gateway.journal.store import JournalFolder
from skyplane_gateway.journal.writer import JournalKeeper, NoJournal, take_over
from skyplane_gateway.lead.multipart import Uploads
from skyplane_gateway.lead.resume import Recovery
from skyplane_gateway.lead.resume_rules import Past
from skyplane_gateway.lead.sink_pool import Sinks
from skyplane_gateway.objects import IF_ABSENT, ObjectInfo, StoreSpec
from skyplane_gateway.selection import Selection
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.memory import create_bucket

KEY = "ab" * 16
INFO = ObjectInfo("k", 12, "etag", 1.0)
ROW = Selection(INFO, "out/k", None, "copy", "", IF_ABSENT)


class Sink:
    """A sink whose first answer to `create` is lost, and that fails what it is told to."""

    def __init__(self, destination: Destination) -> None:
        self.node = "b"
        self.fails: set[str] = set()
        self._destination = destination
        self._has_lost = False

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if verb in self.fails:
            raise StoreUnavailable("503")
        answer = self._destination.run(verb, arguments)
        if verb == "create" and not self._has_lost:
            self._has_lost = True
            raise GatewayUnreachable("no answer")
        return answer

    def close(self) -> None: ...


@pytest.fixture
def store() -> ObjectStore:
    spec = StoreSpec("memory", uuid.uuid4().hex)
    create_bucket(spec.bucket)
    return open_store(spec)


def led(store: ObjectStore, then: Callable[[Sink, Uploads], Awaitable[None]]) -> str:
    """A lead begins an upload, whose first answer is lost; then it dies. The id that it had."""

    async def scenario() -> str:
        sink = Sink(Destination(store, "stored"))
        sinks = Sinks([sink], stall_deadline_s=60.0, rng=random.Random(1))
        sink.fails.add("abort_intended")

        async def verb(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            return (await sinks.call(name, arguments))[0]

        keeper = JournalKeeper(verb, "out/", Journal(KEY, 1, "r", 5, writer="w"), None)
        keeping = asyncio.create_task(keeper.run())
        uploads = Uploads(sinks, random.Random(1))
        uploads.keeper = keeper
        begun = await uploads.begin(ROW, INFO, 5)
        await then(sink, uploads)
        await keeper.flush()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        return begun.upload_id

    return asyncio.run(scenario())


def ids(store: ObjectStore) -> set[str]:
    return {row.upload_id for row in store.list_uploads("")}


async def nothing(sink: Sink, uploads: Uploads) -> None: ...


def test_the_next_lead_hears_of_it(store: ObjectStore) -> None:
    """The journal named the upload of the second request alone, and the other stayed open."""
    ours = led(store, nothing)
    assert len(ids(store)) == 2

    async def verb(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return Destination(store, "stored").run(name, arguments)

    past = asyncio.run(take_over(verb, "out/", KEY, 2, "r"))
    assert past.journal is not None
    assert past.journal.uploads[-1].upload_id == ours
    assert past.strays == ()
    place = {"folder": "out/", "transfer_key": KEY, "epoch": 2}
    recovery = Recovery(Past(past.journal), verb, cast("Any", None), place)
    # What the store makes of the journal meanwhile does not matter.
    store.put(journal_key("out/", KEY, 1), b"{")
    asyncio.run(recovery.abort_lost(past.lost, NoJournal()))
    assert ids(store) == {ours}


def test_whoever_clears_up_aborts_it(store: ObjectStore) -> None:
    led(store, nothing)
    assert JournalFolder(store, "out/", KEY).remove(1).reason == ""
    assert not ids(store)


def test_what_could_not_be_aborted_is_settled_at_the_end(store: ObjectStore) -> None:
    """And then the journal says no more of it."""

    async def settled(sink: Sink, uploads: Uploads) -> None:
        await uploads.keeper.flush()
        await uploads.settle_doubts()
        await uploads.keeper.flush()
        (named,) = JournalFolder(store, "out/", KEY).uploads()
        assert [row.key for row in named.lost] == ["out/k"], "no sink could"
        sink.fails.clear()
        await uploads.settle_doubts()

    ours = led(store, settled)
    assert ids(store) == {ours}
    (named,) = JournalFolder(store, "out/", KEY).uploads()
    assert [row.upload_id for row in named.rows] == [ours]
    assert named.lost == ()
