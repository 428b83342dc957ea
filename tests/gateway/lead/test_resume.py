"""A lead that dies after any event, before or after its effect, and is succeeded."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyplane_gateway.checksum import crc32c
from skyplane_gateway.config import ConflictRule
from skyplane_gateway.errors import ChecksumMismatch
from skyplane_gateway.journal.document import DoneRow, Journal, LostRow, UploadRow
from skyplane_gateway.journal.earlier_epochs import EarlierEpochs, seal_earlier_epochs
from skyplane_gateway.journal.state import JournalState
from skyplane_gateway.journal.store import JournalFolder
from skyplane_gateway.journal.writer import JournalWriter
from skyplane_gateway.lead.resume import Resumed, Resumer
from skyplane_gateway.lead.resume_rules import EarlierJournal
from skyplane_gateway.objects import (
    IF_ABSENT,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
    StoreSpec,
)
from skyplane_gateway.selection import Selection, SelectionRule, is_published_last, select
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.memory import create_bucket, delete_bucket
from skyplane_gateway.stores.readback import read_crc32c

KEY = "cd" * 16
RULE = "the rule"
FOLDER = "out/"
PART = 4


class Died(BaseException):
    """The end of a process: nothing of it runs on."""


def bucket() -> ObjectStore:
    spec = StoreSpec("memory", uuid.uuid4().hex)
    create_bucket(spec.bucket)
    return open_store(spec)


def body_of(store: ObjectStore, info: ObjectInfo) -> bytes:
    buffer = bytearray(info.size_bytes)
    with store.read(info.key, offset=0, length=info.size_bytes, if_match=info.etag) as reader:
        reader.readinto(memoryview(buffer))
    return bytes(buffer)


@dataclass
class World:
    """Both stores, and what was sent in the present epoch."""

    conflict: ConflictRule
    source: ObjectStore = field(default_factory=bucket)
    there: ObjectStore = field(default_factory=bucket)
    sent: list[tuple[str, str, int]] = field(default_factory=list)
    epoch: int = 0
    outcomes: dict[str, str] = field(default_factory=dict)
    #: Epochs in which every object came to its end.
    ended: set[int] = field(default_factory=set)

    def content(self) -> dict[str, bytes]:
        return {row.key: body_of(self.there, row) for row in self.there.list("")}

    def wanted(self) -> dict[str, bytes]:
        rows = self.source.list("")
        return {FOLDER + row.key: body_of(self.source, row) for row in rows}

    def close(self) -> None:
        for store in (self.source, self.there):
            delete_bucket(store.spec.bucket)

    def confirmed(self) -> set[tuple[str, str, int]]:
        """Parts and objects that the newest journal and the store agree on: number 0 is a
        whole object."""
        found: set[tuple[str, str, int]] = set()
        stored = JournalFolder(self.there, FOLDER, KEY).read().readable
        if not stored:
            return found
        journal = stored[-1].journal
        etags = {row.key: row.etag for row in self.there.list("")}
        found |= {
            (row.key, row.source_etag, 0) for row in journal.done if etags.get(row.key) == row.etag
        }
        opened = {(row.key, row.upload_id) for row in self.there.list_uploads("")}
        for row in journal.uploads:
            if row.upload_id is not None and (row.key, row.upload_id) in opened:
                for part in self.there.list_parts(row.key, row.upload_id):
                    found.add((row.key, row.source_etag, part.number))
        return found


class Lead:
    """As much of a lead as has to do with the journal; dies at its `life`-th act."""

    def __init__(self, world: World, life: int | None, after_effect: bool) -> None:
        self.world = world
        self._life = life
        self._after_effect = after_effect
        self._acts = 0
        self._destination = Destination(world.there, "stored")

    def _act(self, effect: Any) -> Any:
        self._acts += 1
        if self._life is not None and self._acts >= self._life:
            if self._acts == self._life and self._after_effect:
                effect()
            raise Died
        return effect()

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        answer: dict[str, Any] = self._act(lambda: self._destination.run(verb, arguments))
        await asyncio.sleep(0)
        return answer

    async def run(self) -> None:
        world = self.world
        world.epoch += 1
        inherited = await seal_earlier_epochs(self.call, FOLDER, KEY, world.epoch, RULE)
        identity = Journal(KEY, world.epoch, RULE, PART, writer=uuid.uuid4().hex)
        self.journal = JournalWriter(self.call, FOLDER, identity, inherited.journal, interval_s=0.0)
        writing = asyncio.create_task(self.journal.run())
        try:
            await self.journal.flush()
            self.resumer = Resumer(
                EarlierJournal(inherited.journal), self.call, self, self.journal.place()
            )
            await self.resumer.abort_abandoned(inherited, self.journal.state)
            await self._everything()
        finally:
            writing.cancel()
            (ending,) = await asyncio.gather(writing, return_exceptions=True)
            if isinstance(ending, Died):
                raise ending
        world.ended.add(world.epoch)
        await self.call("delete_journals", self.journal.place())

    async def head(self, key: str) -> ObjectInfo:
        return self.world.source.head(key)

    async def crc32c(self, info: ObjectInfo) -> int | None:
        return read_crc32c(self.world.source, info, info.size_bytes)

    async def _everything(self) -> None:
        rule = SelectionRule("", FOLDER, conflict=self.world.conflict)
        rows = list(select(rule, self.world.source.list, self.world.there.list))
        last = [row for row in rows if is_published_last(row.destination_key)]
        first = [row for row in rows if not is_published_last(row.destination_key)]
        for group, is_last in ((first, False), (last, True)):
            for start in range(0, len(group), 3):
                moves = []
                for row in group[start : start + 3]:
                    self.journal.state.listed(row.destination_key, is_last=is_last)
                    moves.append(self._move(row, is_last))
                for result in await asyncio.gather(*moves, return_exceptions=True):
                    if isinstance(result, BaseException):
                        raise result

    async def _move(self, row: Selection, is_last: bool) -> None:
        key = row.destination_key
        resumed = await self.resumer.resume(row, is_last=is_last)
        if resumed.gone is not None:
            self.journal.state.upload_aborted(key, resumed.gone.upload_id)
        row = resumed.row
        self.world.outcomes[key] = "copied"
        if resumed.is_finished:
            if resumed.done is not None:
                self.journal.state.committed(resumed.done)
            else:
                self.journal.state.skipped(key)
        elif row.action == "skip":
            self.world.outcomes[key] = "skipped"
            self.journal.state.skipped(key)
        elif row.action == "refuse":
            self.world.outcomes[key] = "failed"
            self.journal.state.failed(key, "already-exists")
        elif row.source.size_bytes <= PART:
            await self._put(row)
        else:
            await self._upload(row, resumed)

    def _sends(self, row: Selection, number: int) -> None:
        self.world.sent.append((row.destination_key, row.source.etag, number))

    async def _put(self, row: Selection) -> None:
        if self.world.conflict == "fail":
            await self.journal.flush()  # The rule would hold it against the next lead.
        body = body_of(self.world.source, row.source)
        self._sends(row, 0)
        info = self._act(
            lambda: self._destination.put(
                row.destination_key, body, crc32c(body), ObjectAttributes(), row.precondition
            )
        )
        self._enter(row, info.etag, crc32c(body))

    async def _upload(self, row: Selection, resumed: Resumed) -> None:
        key, body = row.destination_key, body_of(self.world.source, row.source)
        upload = resumed.upload
        if upload is None:
            upload = UploadRow(
                key, None, row.source.key, row.source.etag, row.source.size_bytes, PART
            )
            self.journal.state.upload_intended(upload)
            await self.journal.flush()
            answer = await self.call(
                "create", {"key": key, "attributes": None, "is_journaled": True}
            )
            self.journal.state.upload_created(key, answer["upload_id"])
            upload_id = answer["upload_id"]
        else:
            upload_id = upload.upload_id
        parts = []
        for number in range(1, -(-len(body) // PART) + 1):
            piece = body[(number - 1) * PART : number * PART]
            part = resumed.parts.get(number)
            if part is None:
                self._sends(row, number)
                part = await self._part(key, upload_id, number, piece)
            parts.append(part)
        self.journal.state.upload_committing(key, crc32c(body))
        await self.journal.flush()
        answer = await self.call(
            "complete",
            {
                "key": key,
                "upload_id": upload_id,
                "parts": [part.to_dict() for part in parts],
                "precondition": row.precondition.to_dict(),
                "size_bytes": len(body),
                "crc32c": crc32c(body),
            },
        )
        self._enter(row, answer["etag"], crc32c(body))

    async def _part(self, key: str, upload_id: str, number: int, piece: bytes) -> PartInfo:
        await asyncio.sleep(0)
        part: PartInfo = self._act(
            lambda: self._destination.put_part(
                key, upload_id, number, piece, (number - 1) * PART, crc32c(piece)
            )
        )
        return part

    def _enter(self, row: Selection, etag: str, crc: int) -> None:
        size = row.source.size_bytes
        self.journal.state.committed(DoneRow(row.destination_key, etag, row.source.etag, size, crc))


def live(world: World, life: int | None, after_effect: bool) -> bool:
    """One epoch; whether it came to its end."""
    confirmed = world.confirmed()
    world.sent.clear()
    try:
        asyncio.run(Lead(world, life, after_effect).run())
    except Died:
        # Dead after its last act, with nothing of it left: it had succeeded.
        is_whole = world.epoch in world.ended and not list(world.there.list(f"{FOLDER}.skyplane"))
    else:
        is_whole = True
    sent = set(world.sent)
    assert len(sent) == len(world.sent)
    again = {row for row in sent & confirmed if row[2] > 0}
    again |= {row for row in sent if (row[0], row[1], 0) in confirmed}
    assert not again, "what journal and store confirm was sent again"
    return is_whole


NAMES = ("_SUCCESS", "a", "b/1", "b/2", "c", "d", "e", "f")

worlds = st.fixed_dictionaries(
    {
        "conflict": st.sampled_from(["replace", "fail", "skip"]),
        "sizes": st.dictionaries(st.sampled_from(NAMES), st.integers(0, 14), min_size=1),
        "there": st.sets(st.sampled_from(NAMES), max_size=3),
        "deaths": st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=6),
        "changes": st.lists(st.integers(0, 7), max_size=6),
    }
)


@settings(max_examples=150, deadline=None)
@given(worlds)
def test_whatever_dies_whenever_the_last_lead_brings_it_home(case: dict[str, Any]) -> None:
    world = World(case["conflict"])
    try:
        for name, size in case["sizes"].items():
            world.source.put(name, name.encode()[:1] * size)
        if world.conflict == "replace":
            for name in case["there"]:
                world.there.put(FOLDER + name, b"an older object")
        changes = list(case["changes"]) if world.conflict == "replace" else []
        for life, after_effect in case["deaths"]:
            if live(world, life, after_effect):
                break
            if changes:
                names = sorted(case["sizes"])
                name = names[changes.pop(0) % len(names)]
                world.source.put(name, bytes([len(changes)]) * case["sizes"][name])
        else:
            assert live(world, None, False)
        content, wanted = world.content(), world.wanted()
        assert {key: content.get(key) for key in wanted} == wanted
        assert set(world.outcomes.values()) <= {"copied", "skipped"}
        assert set(content) - set(wanted) <= {FOLDER + name for name in case["there"]}
        assert list(world.there.list_uploads("")) == []
    finally:
        world.close()


@pytest.mark.parametrize("conflict", ["replace", "fail", "skip"])
@pytest.mark.parametrize("after_effect", [True, False])
def test_a_death_at_every_single_act(conflict: ConflictRule, after_effect: bool) -> None:
    life = 0
    while True:
        life += 1
        world = World(conflict)
        try:
            for name, size in (("a", 3), ("b", 10), ("_SUCCESS", 0)):
                world.source.put(name, name.encode()[:1] * size)
            is_over = live(world, life, after_effect)
            if not is_over:
                assert live(world, None, False)
            assert world.content() == world.wanted()
            assert list(world.there.list_uploads("")) == []
        finally:
            world.close()
        if is_over:
            assert life > 12
            return


OLD = ObjectAttributes(content_type="binary/octet-stream")
NEW = ObjectAttributes(content_type="text/csv", metadata=(("owner", "finance"),))


class Mended:
    """A source whose object was copied, and then given another content type. The lead that
    copies it again died when the commit was about to begin."""

    def __init__(self, action: str) -> None:
        self.source, self.there = bucket(), bucket()
        self.body = b"b" * (2 * PART)
        self.source.put("k", self.body, attributes=NEW)
        self.there.put("k", self.body, attributes=OLD)
        info = self.source.head("k")
        upload_id = self.there.create_upload("k", NEW)
        row = UploadRow("k", upload_id, "k", info.etag, len(self.body), PART, crc32c(self.body))
        journal = Journal(KEY, 1, RULE, PART, writer="w", uploads=(row,))
        self.resumer = Resumer(
            EarlierJournal(journal),
            self.call,
            self,
            {"folder": "", "transfer_key": KEY, "epoch": 2},
        )
        left = self.there.head("k")
        fence = Precondition(if_match=left.etag)
        self.row = Selection(info, "k", left, action, "", fence)  # type: ignore[arg-type]

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return Destination(self.there, "stored").run(verb, arguments)

    async def head(self, key: str) -> ObjectInfo:
        return self.source.head(key)

    async def crc32c(self, info: ObjectInfo) -> int:
        return crc32c(self.body)


def test_an_older_object_of_the_same_bytes_is_not_taken_for_the_copy() -> None:
    """It was, and kept the content type that had been mended at the source."""
    mended = Mended("copy")
    resumed = asyncio.run(mended.resumer.resume(mended.row))
    assert not resumed.is_finished
    assert resumed.upload is not None
    assert [row.upload_id for row in mended.there.list_uploads("")] == [resumed.upload.upload_id]


@pytest.mark.parametrize("seen", ["committed", "gone", "refuse"])
def test_what_has_the_attributes_of_the_copy_or_is_kept_anyhow_is_finished(seen: str) -> None:
    mended = Mended("refuse" if seen == "refuse" else "copy")
    if seen == "committed":
        mended.there.put("k", mended.body, attributes=NEW)
    elif seen == "gone":
        mended.source.delete("k")
    resumed = asyncio.run(mended.resumer.resume(mended.row))
    assert resumed.is_finished
    assert list(mended.there.list_uploads("")) == []


@pytest.mark.parametrize("seen", ["equal", "gone"])
def test_what_a_rule_keeps_is_compared_where_it_may_be_an_unverified_write(seen: str) -> None:
    mended = Mended("skip")
    if seen == "gone":
        mended.there.delete("k")
    resumed = asyncio.run(mended.resumer.resume(mended.row))
    assert (resumed.is_finished, resumed.row.action) == (
        (True, "skip") if seen == "equal" else (False, "copy")
    )
    assert seen == "equal" or resumed.row.precondition == IF_ABSENT
    assert list(mended.there.list_uploads("")) == []


def test_other_bytes_that_may_be_an_unverified_write_stay_and_are_reported() -> None:
    mended = Mended("skip")
    spoilt = mended.there.put("k", b"a" + mended.body[1:])
    with pytest.raises(ChecksumMismatch, match="earlier try") as caught:
        asyncio.run(mended.resumer.resume(mended.row))
    assert caught.value.is_permanent
    assert mended.there.head("k").etag == spoilt.etag
    assert list(mended.there.list_uploads("")) == []


def test_uploads_of_requests_that_an_earlier_lead_lost_are_aborted() -> None:
    """The store had run a request whose answer was lost; another upload is continued."""
    mended = Mended("copy")
    (ours,) = mended.there.list_uploads("")
    mended.there.create_upload("k")
    lost = LostRow("k", ours.initiated, ours.initiated + 1.0)
    state = JournalState(Journal(KEY, 2, RULE, PART, writer="w", lost=(lost,)))
    left = EarlierEpochs(None, (), (lost,))
    asyncio.run(mended.resumer.abort_abandoned(left, state))
    assert list(mended.there.list_uploads("")) == [ours]
    assert state.journal(1).lost == ()
