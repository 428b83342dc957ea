from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

import pytest

from skyplane_gateway.errors import (
    ChecksumMismatch,
    GatewayLost,
    GatewayUnreachable,
    PermissionDenied,
    SkyplaneError,
    StoreUnavailable,
)
from skyplane_gateway.lead import movers as movers_module
from skyplane_gateway.lead.movers import Movers
from skyplane_gateway.lead.pauses import MAX_ATTEMPTS
from skyplane_gateway.lead.report import Report
from skyplane_gateway.orders import RangeOrder, RangeOutcome
from skyplane_gateway.protocol.checksum import combine
from skyplane_gateway.protocol.checksum import crc32c as checksum
from skyplane_gateway.selection import Selection
from skyplane_gateway.stores.base import IF_ABSENT, ObjectInfo, StoreCapabilities

Run = Callable[[Any], Any]
_GONE = GatewayUnreachable("127.0.0.1:1 does not answer")
#: The least that a store takes.
PART = bytes(1 << 20)
PART_CRC = checksum(PART)


class FakeSink:
    """Answers verbs, and remembers them."""

    def __init__(self, node: str, calls: list[tuple[str, str]]) -> None:
        self.node = node
        self.calls = calls
        self.errors: dict[str, list[SkyplaneError]] = {}

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.calls.append((self.node, verb))
        if self.errors.get(verb):
            raise self.errors[verb].pop(0)
        if verb == "create":
            return {"upload_id": f"{self.node}-{arguments['key']}"}
        return {"crc32c": arguments.get("crc32c"), "etag": "e"}

    def close(self) -> None: ...


class FakeCourier:
    """Delivers at once what it is given; `under_way` is how much at most at a time."""

    def __init__(self) -> None:
        self.fate: Callable[[RangeOrder], SkyplaneError | None] = lambda _: None
        self.most_under_way = 0
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
            error = self.fate(wanted)
            outcomes.append(RangeOutcome(error) if error else RangeOutcome(None, "e", PART_CRC))
        return outcomes, 1


class FakeStore:
    def head(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, 0, "e", 0.0)


class Scene:
    def __init__(self, inline: Executor, sinks: int = 2) -> None:
        self.calls: list[tuple[str, str]] = []
        self.sinks = [FakeSink(f"s{number}", self.calls) for number in range(sinks)]
        self.courier = FakeCourier()
        self.report = Report()
        self.movers = Movers(
            courier=self.courier,  # type: ignore[arg-type]
            report=self.report,
            store=FakeStore(),  # type: ignore[arg-type]
            sinks=self.sinks,
            capabilities=StoreCapabilities(True, True, True, 1, 1 << 40, 10_000, 1 << 50),
            chunk_bytes=len(PART),
            threads=inline,
            randomness=random.Random(1),
        )

    def row(self, key: str, parts: int = 3) -> Selection:
        source = ObjectInfo(key, parts * len(PART), "e", 0.0)
        return Selection(source, f"to/{key}", None, "copy", "", IF_ABSENT)


def test_an_upload_ends_where_it_began(virtual: Run, inline: Executor) -> None:
    """Else each sink would try to abort, at the end, what others have completed long ago."""

    async def scenario() -> None:
        scene = Scene(inline)
        for number in range(4):
            await scene.movers.move_in_parts(scene.row(f"k{number}"))
        assert scene.report.counters.copied == 4
        assert scene.movers.open_uploads == set()
        for node in ("s0", "s1"):
            verbs = [verb for sink, verb in scene.calls if sink == node]
            assert verbs == ["create", "complete"] * 2

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
        assert scene.movers.open_uploads == set()

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


def test_a_whole_that_differs_is_a_failure(virtual: Run, inline: Executor) -> None:
    async def scenario() -> None:
        scene = Scene(inline, sinks=1)
        scene.sinks[0].errors["complete"] = [ChecksumMismatch("other bytes", is_permanent=True)]
        await scene.movers.move_in_parts(scene.row("k"))
        assert scene.report.failures[0]["code"] == "checksum-mismatch"

    virtual(scenario())


def test_a_lost_sink_ends_the_transfer_and_its_upload_stays_listed(
    virtual: Run, inline: Executor
) -> None:
    async def scenario() -> None:
        scene = Scene(inline)
        scene.sinks[1].errors = {"complete": [_GONE]}
        with pytest.raises(GatewayLost, match="s1 is lost"):
            await scene.movers.move_in_parts(scene.row("k"))
        (upload,) = scene.movers.open_uploads
        # The other sink will do.
        await scene.movers.abort(upload)
        assert scene.movers.open_uploads == set()
        assert scene.calls[-1] == ("s0", "abort")

    virtual(scenario())


def test_uploads_that_no_sink_can_abort_stay_listed_and_cost_no_patience(
    virtual: Run, inline: Executor
) -> None:
    """Each call to a gateway that hangs takes a minute; a transfer may have many uploads."""

    async def scenario() -> None:
        scene = Scene(inline)
        uploads = [
            await scene.movers._begin(scene.row(f"k{number}"), FakeStore().head("k"))
            for number in range(6)
        ]
        for sink in scene.sinks:
            sink.errors = {"abort": [_GONE] * 10}
        del scene.calls[:]
        for upload in uploads:
            await scene.movers.abort(upload)
        assert scene.movers.open_uploads == set(uploads)
        assert sorted(scene.calls) == [("s0", "abort"), ("s1", "abort")]

    virtual(scenario())


def test_parts_without_number_do_not_wait_as_tasks(
    virtual: Run, inline: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(movers_module, "_PARTS_UNDER_WAY", 16)

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
