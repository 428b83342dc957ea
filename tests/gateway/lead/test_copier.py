from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import pytest

from skyplane_gateway.checksum import combine
from skyplane_gateway.checksum import crc32c as checksum
from skyplane_gateway.chunk_orders import RangeOrder, RangeOutcome
from skyplane_gateway.errors import (
    ChecksumMismatch,
    GatewayLost,
    GatewayUnreachable,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    SkyplaneError,
    StoreUnavailable,
)
from skyplane_gateway.journal.document import Journal, UploadRow, attributes_digest
from skyplane_gateway.journal.state import Ledger
from skyplane_gateway.lead import copier
from skyplane_gateway.lead.copier import Movers
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.lead.resume import Settled
from skyplane_gateway.lead.retry import MAX_ATTEMPTS
from skyplane_gateway.lead.sink_pool import Sinks
from skyplane_gateway.lead.source_store import SourceCalls
from skyplane_gateway.objects import IF_ABSENT, ObjectAttributes, ObjectInfo, StoreCapabilities
from skyplane_gateway.selection import Selection

Run = Callable[[Any], Any]
_GONE = GatewayUnreachable("127.0.0.1:1 does not answer")
STALL_S = 240.0
#: The least that a store takes.
PART = bytes(1 << 20)
PART_CRC = checksum(PART)


class FakeSink:
    """Answers verbs, and remembers them."""

    def __init__(self, node: str, calls: list[tuple[str, str]]) -> None:
        self.node = node
        self.calls = calls
        self.asked: list[dict[str, Any]] = []
        self.errors: dict[str, list[SkyplaneError]] = {}
        self.upload_ids: Iterator[str] = iter(())

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.calls.append((self.node, verb))
        self.asked.append(dict(arguments))
        if self.errors.get(verb):
            raise self.errors[verb].pop(0)
        if verb == "create":
            return {"upload_id": next(self.upload_ids, f"{self.node}-{arguments['key']}")}
        return {"crc32c": arguments.get("crc32c"), "etag": "e"}

    def close(self) -> None: ...


class FakeCourier:
    """Delivers at once what it is given; `under_way` is how much at most at a time."""

    def __init__(self) -> None:
        self.fate: Callable[[RangeOrder], SkyplaneError | None] = lambda _: None
        self.most_under_way = 0
        self.says_source = True
        self.etags: list[str] = []
        self._under_way = 0

    async def deliver(
        self, kind: str, ranges: tuple[RangeOrder, ...], **_: Any
    ) -> tuple[list[RangeOutcome], int]:
        self._under_way += 1
        self.most_under_way = max(self.most_under_way, self._under_way)
        await asyncio.sleep(0)
        self._under_way -= 1
        outcomes = []
        for wanted in ranges:
            self.etags.append(wanted.etag)
            error = self.fate(wanted)
            changed = isinstance(error, PreconditionFailed | NotFound) and self.says_source
            outcomes.append(
                RangeOutcome(error, at_source=changed)
                if error
                else RangeOutcome(None, "e", PART_CRC)
            )
        return outcomes, 1


class FakeStore:
    """What is at the source now, if it is not what was listed: key -> (etag, parts)."""

    def __init__(self) -> None:
        self.now: dict[str, tuple[str, int] | SkyplaneError] = {}
        self.heads = 0

    def head(self, key: str) -> ObjectInfo:
        self.heads += 1
        found = self.now.get(key, ("e", 3))
        if isinstance(found, SkyplaneError):
            raise found
        etag, parts = found
        return ObjectInfo(key, parts * len(PART), etag, 0.0)


class Scene:
    def __init__(self, inline: Executor, sinks: int = 2) -> None:
        self.calls: list[tuple[str, str]] = []
        self.sinks = [FakeSink(f"s{number}", self.calls) for number in range(sinks)]
        self.courier = FakeCourier()
        self.store = FakeStore()
        self.report = Report()
        self.movers = Movers(
            courier=self.courier,  # type: ignore[arg-type]
            report=self.report,
            source=SourceCalls(
                self.store,  # type: ignore[arg-type]
                inline,
                stall_deadline_s=STALL_S,
                rng=random.Random(1),
            ),
            sinks=Sinks(self.sinks, stall_deadline_s=STALL_S, rng=random.Random(1)),
            capabilities=StoreCapabilities(True, True, True, 1, 1 << 40, 10_000, 1 << 50),
            chunk_bytes=len(PART),
            rng=random.Random(1),
        )

    def row(self, key: str, parts: int = 3) -> Selection:
        source = ObjectInfo(key, parts * len(PART), "e", 0.0)
        return Selection(source, f"to/{key}", None, "copy", "", IF_ABSENT)


def test_an_upload_ends_where_it_began(virtual: Run, inline: Executor) -> None:
    async def scenario() -> None:
        scene = Scene(inline)
        for number in range(4):
            await scene.movers.move_in_parts(scene.row(f"k{number}"))
        assert scene.report.counters.copied == 4
        assert scene.movers.uploads.open == set()
        for node in ("s0", "s1"):
            verbs = [verb for sink, verb in scene.calls if sink == node]
            assert verbs == ["create", "complete"] * 2

    virtual(scenario())


@pytest.mark.parametrize(("known", "most"), [(5, 3), (7, 6), (2, 3), (100, 12)])
def test_objects_in_parts_wait_for_room_to_know_their_parts(
    virtual: Run, inline: Executor, monkeypatch: pytest.MonkeyPatch, known: int, most: int
) -> None:
    monkeypatch.setattr(copier, "_PARTS_KNOWN", known)

    async def scenario() -> None:
        scene = Scene(inline)
        rows = [scene.row(f"k{number}", parts=3) for number in range(4)]
        await asyncio.gather(*map(scene.movers.move_in_parts, rows))
        assert scene.courier.most_under_way == most
        assert scene.report.counters.copied == 4

    virtual(scenario())


def test_the_checksum_of_the_whole_is_that_of_its_parts(virtual: Run, inline: Executor) -> None:
    async def scenario() -> None:
        scene = Scene(inline)
        await scene.movers.move_in_parts(scene.row("k", parts=3))
        whole = 0
        for _ in range(3):
            whole = combine(whole, checksum(PART), len(PART))
        assert scene.report.page(0)["rows"][0]["crc32c"] == whole == checksum(PART * 3)

    virtual(scenario())


def test_a_part_that_fails_aborts_the_upload_and_fails_the_object(
    virtual: Run, inline: Executor
) -> None:
    async def scenario() -> None:
        scene = Scene(inline)
        scene.courier.fate = lambda wanted: (
            PermissionDenied("no") if wanted.offset == len(PART) else None
        )
        await scene.movers.move_in_parts(scene.row("k"))
        assert scene.report.failures[0]["code"] == "permission-denied"
        assert ("s1", "abort") in scene.calls
        assert scene.movers.uploads.open == set()

    virtual(scenario())


def test_a_completion_is_tried_again_while_that_can_help(virtual: Run, inline: Executor) -> None:
    async def scenario() -> None:
        scene = Scene(inline, sinks=1)
        scene.sinks[0].errors["complete"] = [StoreUnavailable("503"), StoreUnavailable("503")]
        await scene.movers.move_in_parts(scene.row("k"))
        assert scene.report.counters.copied == 1
        scene.sinks[0].errors["complete"] = [StoreUnavailable("503")] * MAX_ATTEMPTS
        await scene.movers.move_in_parts(scene.row("k2"))
        assert scene.report.counters.failed == 1
        assert scene.calls[-1] == ("s0", "abort")

    virtual(scenario())


def test_a_completion_may_be_under_way_for_a_sink_that_is_gone(
    virtual: Run, inline: Executor
) -> None:
    """Its upload is no more, and its object not yet there."""

    async def scenario() -> None:
        scene = Scene(inline, sinks=2)
        scene.sinks[1].errors["complete"] = [_GONE]
        scene.sinks[0].errors["complete"] = [NotFound("no such upload")] * 2
        await scene.movers.move_in_parts(scene.row("k"))
        assert (scene.report.counters.copied, scene.movers.uploads.open) == (1, set())

    virtual(scenario())


def test_an_upload_that_vanishes_is_started_over_once(virtual: Run, inline: Executor) -> None:
    """A lifecycle rule of the bucket, or somebody who tidies up."""

    async def scenario() -> None:
        scene = Scene(inline, sinks=1)
        gone = [NotFound("no such upload")]
        scene.courier.fate = lambda wanted: gone.pop() if gone and wanted.offset else None
        scene.courier.says_source = False
        await scene.movers.move_in_parts(scene.row("at-a-part"))
        (sink,) = scene.sinks
        sink.errors["complete"] = [NotFound("no such upload")] * MAX_ATTEMPTS
        await scene.movers.move_in_parts(scene.row("at-the-end"))
        assert scene.report.counters.copied == 2
        verbs = [verb for _, verb in scene.calls]
        tries = ["complete"] * MAX_ATTEMPTS
        assert verbs[:4] == ["create", "abort", "create", "complete"]
        assert verbs[4:] == ["create", *tries, "abort", "create", "complete"]
        sink.errors["complete"] = [NotFound("no such upload") for _ in range(2 * MAX_ATTEMPTS)]
        await scene.movers.move_in_parts(scene.row("again"))
        assert scene.report.failures[0]["code"] == "not-found"
        assert scene.movers.uploads.open == set()

    virtual(scenario())


def test_a_source_object_that_is_gone_is_no_upload_that_is(virtual: Run, inline: Executor) -> None:
    async def scenario() -> None:
        scene = Scene(inline, sinks=1)
        scene.courier.fate = lambda _: NotFound("no such object")
        await scene.movers.move_in_parts(scene.row("k"))
        assert scene.report.failures[0]["code"] == "not-found"
        assert [verb for _, verb in scene.calls] == ["create", "abort"]

    virtual(scenario())


def test_a_whole_that_differs_is_sent_again_once_and_then_a_failure(
    virtual: Run, inline: Executor
) -> None:
    async def scenario() -> None:
        scene = Scene(inline, sinks=1)
        bad = ChecksumMismatch("other bytes", is_permanent=True)
        scene.sinks[0].errors["complete"] = [bad]
        await scene.movers.move_in_parts(scene.row("k"))
        again = ["create", "complete", "abort"]
        assert [verb for _, verb in scene.calls] == [*again, "create", "complete"]
        assert scene.report.counters.copied == 1
        scene.sinks[0].errors["complete"] = [bad, bad]
        del scene.calls[:]
        await scene.movers.move_in_parts(scene.row("k2"))
        assert [verb for _, verb in scene.calls] == 2 * again
        assert scene.report.failures[0]["code"] == "checksum-mismatch"

    virtual(scenario())


def test_an_upload_of_a_lost_sink_ends_at_another(virtual: Run, inline: Executor) -> None:
    async def scenario() -> None:
        scene = Scene(inline)
        scene.sinks[1].errors = {"complete": [_GONE]}
        await scene.movers.move_in_parts(scene.row("k"))
        assert scene.calls == [("s1", "create"), ("s1", "complete"), ("s0", "complete")]
        assert scene.report.counters.copied == 1
        assert scene.movers.uploads.open == set()
        # The silent one comes last from now on.
        await scene.movers.move_in_parts(scene.row("k2"))
        await scene.movers.move_in_parts(scene.row("k3"))
        assert {node for node, _ in scene.calls[3:]} == {"s0"}

    virtual(scenario())


def test_without_any_sink_the_transfer_ends_and_its_uploads_stay_listed(
    virtual: Run, inline: Executor
) -> None:
    async def scenario() -> None:
        scene = Scene(inline)
        for sink in scene.sinks:
            sink.errors = {"complete": [_GONE] * 1000}
        with pytest.raises(GatewayLost, match=r"s[01] is lost.*s[01] is lost"):
            await scene.movers.move_in_parts(scene.row("k"))
        assert asyncio.get_running_loop().time() == pytest.approx(STALL_S, abs=11.0)
        assert len(scene.movers.uploads.open) == 1

    virtual(scenario())


def test_an_upload_that_nobody_was_told_of_is_aborted_at_once_and_at_the_end(
    virtual: Run, inline: Executor
) -> None:
    """The sink was killed while it began one: only the store knows whether it did, and a
    request may come late."""

    async def scenario() -> None:
        scene = Scene(inline)
        scene.sinks[1].errors = {"create": [_GONE]}
        await scene.movers.move_in_parts(scene.row("k"))
        assert [verb for _, verb in scene.calls] == [
            "create", "create", "abort_intended", "complete"
        ]  # fmt: skip
        assert scene.sinks[0].asked[1]["spared"] == "s0-to/k"
        await scene.movers.move_in_parts(scene.row("k2"))
        del scene.calls[:]
        await asyncio.sleep(100.0)
        await scene.movers.uploads.abort_all()
        assert scene.calls == [("s0", "abort_intended")]
        asked = scene.sinks[0].asked[-1]
        assert (asked["key"], asked["spared"]) == ("to/k", None)
        assert asked["asked_s_ago"] >= 100.0
        await scene.movers.uploads.abort_all()
        assert len(scene.calls) == 1

    virtual(scenario())


# -- the source changes


def once_changed(etag: str = "e") -> Callable[[RangeOrder], SkyplaneError | None]:
    """Reading the version that was listed fails; any other is there."""
    return lambda wanted: PreconditionFailed("changed") if wanted.etag == etag else None


def test_a_changed_object_is_started_over_with_its_new_version(
    virtual: Run, inline: Executor
) -> None:
    async def scenario() -> None:
        scene = Scene(inline, sinks=1)
        scene.store.now = {"k": ("e", 3), "one": ("e2", 1)}
        heads = scene.store.head

        def head(key: str) -> ObjectInfo:
            info = heads(key)
            scene.store.now["k"] = ("e2", 4)  # It changes after it was looked at.
            return info

        scene.store.head = head  # type: ignore[method-assign]
        scene.courier.fate = once_changed()
        await scene.movers.move_in_parts(scene.row("k"))
        assert [verb for _, verb in scene.calls] == ["create", "abort", "create", "complete"]
        assert scene.courier.etags[-4:] == ["e2"] * 4
        (row,) = scene.report.page(0)["rows"]
        assert (row["state"], row["bytes"]) == ("copied", 4 * len(PART))
        assert scene.movers.uploads.open == set()
        # Whole objects as well, and only those of a batch that have changed.
        del scene.courier.etags[:]
        same = scene.row("same", parts=1)
        same = replace(same, source=replace(same.source, etag="e0"))
        await scene.movers.move_whole([scene.row("one", parts=1), same])
        assert scene.courier.etags == ["e", "e0", "e2"]
        assert scene.report.counters.copied == 3

    virtual(scenario())


def test_an_object_that_outgrows_a_chunk_goes_in_parts(virtual: Run, inline: Executor) -> None:
    async def scenario() -> None:
        scene = Scene(inline, sinks=1)
        scene.store.now = {"k": ("e2", 3)}
        scene.courier.fate = once_changed()
        await scene.movers.move_whole([scene.row("k", parts=1)])
        assert [verb for _, verb in scene.calls] == ["create", "complete"]
        assert scene.report.counters.copied_bytes == 3 * len(PART)

    virtual(scenario())


@pytest.mark.parametrize("parts", [1, 3])
def test_an_object_that_changes_twice_has_failed(
    parts: int, virtual: Run, inline: Executor
) -> None:
    async def scenario() -> None:
        scene = Scene(inline)
        scene.store.now = {"k": ("e2", parts)}
        scene.courier.fate = lambda _: PreconditionFailed("changed")
        row = scene.row("k", parts=parts)
        await (scene.movers.move_in_parts(row) if parts > 1 else scene.movers.move_whole([row]))
        (failure,) = scene.report.failures
        assert failure["code"] == "precondition-failed"
        assert "changed twice" in failure["reason"]
        assert scene.movers.uploads.open == set()

    virtual(scenario())


@pytest.mark.parametrize("parts", [1, 3])
def test_an_object_that_is_deleted_has_failed_alone(
    parts: int, virtual: Run, inline: Executor
) -> None:
    async def scenario() -> None:
        scene = Scene(inline)
        scene.store.now = {"k": NotFound("there is no object 'k'")}
        scene.courier.fate = lambda wanted: (
            PreconditionFailed("changed") if wanted.source_key == "k" else None
        )
        row = scene.row("k", parts=parts)
        await (scene.movers.move_in_parts(row) if parts > 1 else scene.movers.move_whole([row]))
        await scene.movers.move_whole([scene.row("other", parts=1)])
        assert scene.report.failures[0]["code"] == "not-found"
        assert scene.report.counters.copied == 1

    virtual(scenario())


def test_a_fence_at_the_destination_is_no_change_of_the_source(
    virtual: Run, inline: Executor
) -> None:
    async def scenario() -> None:
        scene = Scene(inline)
        scene.courier.says_source = False
        scene.courier.fate = lambda _: PreconditionFailed("it is there by now")
        await scene.movers.move_whole([scene.row("k", parts=1)])
        assert scene.store.heads == 0
        assert "it is there by now" in scene.report.failures[0]["reason"]

    virtual(scenario())


def test_a_source_that_is_throttled_is_asked_for_the_version_again(
    virtual: Run, inline: Executor
) -> None:
    async def scenario() -> None:
        scene = Scene(inline)
        heads = scene.store.head

        def head(key: str) -> ObjectInfo:
            info = heads(key)
            if scene.store.heads < 3:
                raise StoreUnavailable("503")
            return info

        scene.store.head = head  # type: ignore[method-assign]
        await scene.movers.move_in_parts(scene.row("k"))
        assert scene.report.counters.copied == 1

    virtual(scenario())


def test_uploads_that_no_sink_can_abort_stay_listed_and_cost_no_patience(
    virtual: Run, inline: Executor
) -> None:
    """Each call to a gateway that hangs takes a minute; a transfer may have many uploads."""

    async def scenario() -> None:
        scene = Scene(inline)
        uploads = [
            await scene.movers.uploads.begin(scene.row(f"k{number}"), scene.store.head("k"), 10)
            for number in range(6)
        ]
        for sink in scene.sinks:
            sink.errors = {"abort": [_GONE] * 10}
        del scene.calls[:]
        for upload in uploads:
            await scene.movers.uploads.abort(upload)
        assert scene.movers.uploads.open == set(uploads)
        assert sorted(scene.calls) == [("s0", "abort"), ("s1", "abort")]

    virtual(scenario())


@pytest.mark.parametrize("begun_as", ["text/csv", "binary/octet-stream", None])
def test_an_upload_goes_on_only_with_the_attributes_of_today(
    virtual: Run, inline: Executor, begun_as: str | None
) -> None:
    """What was mended at the source meanwhile, the upload of the earlier epoch did not have."""

    async def scenario() -> None:
        scene = Scene(inline, sinks=1)
        row = scene.row("k")
        today = ObjectAttributes(content_type="text/csv")
        scene.store.head = lambda key: replace(  # type: ignore[method-assign]
            row.source, attributes=today
        )
        upload = UploadRow("to/k", "old", "k", "e", row.source.size_bytes, len(PART))
        if begun_as is not None:
            digest = attributes_digest(ObjectAttributes(content_type=begun_as))
            upload = replace(upload, attributes=digest)
        scene.movers.go_on(Settled(row, upload=upload))
        await scene.movers.move_in_parts(row)
        verbs = [verb for _, verb in scene.calls]
        goes_on = begun_as != "binary/octet-stream"
        assert verbs == (["complete"] if goes_on else ["abort", "create", "complete"])
        assert scene.sinks[0].asked[-1]["attributes"] == today.to_dict()
        assert scene.report.counters.copied == 1

    virtual(scenario())


class Kept:
    """A keeper whose journal is durable at once."""

    def __init__(self) -> None:
        self.ledger = Ledger(Journal("ab" * 16, 1, "rule", len(PART), writer="w"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    async def flush(self) -> None: ...

    def place(self) -> dict[str, Any]:
        return {"folder": "", "transfer_key": "ab" * 16}

    def last_writing(self) -> dict[str, Any]:
        return {"journal_etag": "e", "written_s_ago": 0.0}


def test_an_upload_that_could_not_be_aborted_stays_named_while_its_object_starts_over(
    virtual: Run, inline: Executor
) -> None:
    """The journal forgot it once the key began again: nobody but a sweep of orphans found it."""

    async def scenario() -> None:
        scene = Scene(inline, sinks=1)
        kept = Kept()
        scene.movers.keeper = kept  # type: ignore[assignment]
        (sink,) = scene.sinks
        sink.upload_ids = iter(["first", "second"])
        sink.errors["abort"] = [StoreUnavailable("503")]
        listed = scene.row("k")
        heads = iter(["e", "e2", "e2"])
        scene.store.head = lambda key: replace(  # type: ignore[method-assign]
            listed.source, etag=next(heads)
        )

        def fate(order: RangeOrder) -> SkyplaneError:
            return PreconditionFailed("changed") if order.etag == "e" else GatewayLost("by no path")

        scene.courier.fate = fate
        await scene.movers.move_in_parts(listed)
        named = {row.upload_id for row in kept.ledger.journal(1).uploads}
        assert named == {"first"}, "the second was aborted when the object failed"
        await scene.movers.uploads.abort_all()
        assert kept.ledger.journal(2).uploads == ()

    virtual(scenario())


def test_parts_without_number_do_not_wait_as_tasks(
    virtual: Run, inline: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "_PARTS_UNDER_WAY", 16)

    async def scenario() -> None:
        scene = Scene(inline)
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, len(asyncio.all_tasks()))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await asyncio.gather(
            *(scene.movers.move_in_parts(scene.row(f"k{n}", parts=2000)) for n in range(4))
        )
        watching.cancel()
        assert scene.report.counters.copied == 4
        assert scene.courier.most_under_way == 16
        assert most < 50

    virtual(scenario())
