"""A `Copier` with a fake delivery, a fake source store, one fake sink, and a real journal."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import Any, Final, Literal, cast

from skyplane_gateway.common.checksum import crc32c as checksum
from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_gateway.common.errors import (
    GatewayUnreachable,
    NotFound,
    PreconditionFailed,
    SkyplaneError,
)
from skyplane_gateway.common.objects import (
    IF_ABSENT,
    ObjectInfo,
    PartInfo,
    StoreCapabilities,
    StoreSpec,
)
from skyplane_gateway.common.schema import encode
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.journal.document import Journal
from skyplane_gateway.journal.writer import JournalWriter
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.lead.copier import Copier
from skyplane_gateway.lead.multipart import MultipartCopier
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.lead.recorder import Recorder
from skyplane_gateway.lead.server_side_copies import ServerSideCopies
from skyplane_gateway.lead.sink_pool import SinkPeer, SinkPool
from skyplane_gateway.lead.source_store import SourceStore
from skyplane_gateway.selection.selector import Selection
from skyplane_gateway.source.chunk_orders import RangeOrder, RangeOutcome

GONE: Final = GatewayUnreachable("127.0.0.1:1 does not answer")
STALL_S: Final = 240.0
#: The smallest part of a store.
PART: Final = bytes(1 << 20)
PART_CRC: Final = checksum(PART)


class FakeSink:
    """Answers verbs, and remembers them."""

    def __init__(self, verbs: list[str]) -> None:
        self.asked: list[dict[str, Any]] = []
        self.errors: dict[str, list[SkyplaneError]] = {}
        self.upload_ids: Iterator[str] = iter(())
        self.leftover = ""
        self._verbs = verbs

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._verbs.append(verb)
        self.asked.append(dict(arguments))
        if self.errors.get(verb):
            raise self.errors[verb].pop(0)
        if verb == "create":
            return {"upload_id": next(self.upload_ids, f"id-{arguments['key']}")}
        if verb == "copy_part":
            return encode(PartInfo(arguments["number"], "e", arguments["size_bytes"]))
        left = {"leftover": self.leftover} if self.leftover and verb == "complete" else {}
        return {"crc32c": arguments.get("crc32c"), "etag": "e", **left}


class FakeDelivery:
    """Delivers every range after `takes_s`, or with the error of `fate`."""

    def __init__(self) -> None:
        self.fate: Callable[[RangeOrder], SkyplaneError | None] = lambda _: None
        self.most_in_flight = 0
        self.says_source = True
        self.etags: list[str] = []
        self.ranges: list[RangeOrder] = []
        self.takes_s = 0.0
        self.was_sent: list[bool] = []
        self._in_flight = 0

    async def deliver(
        self, kind: str, ranges: tuple[RangeOrder, ...], *, was_sent: bool = False, **_: Any
    ) -> tuple[list[RangeOutcome], int]:
        self.was_sent.append(was_sent)
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        self.ranges += ranges
        await asyncio.sleep(self.takes_s)
        self._in_flight -= 1
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
    """The source now, where it differs from the listing: key -> (etag, parts)."""

    spec = StoreSpec("memory", "source")

    def __init__(self) -> None:
        self.now: dict[str, tuple[str, int] | SkyplaneError] = {}
        self.heads = 0
        self.crc32c: int | None = None

    def head(self, key: str) -> ObjectInfo:
        self.heads += 1
        found = self.now.get(key, ("e", 3))
        if isinstance(found, SkyplaneError):
            raise found
        etag, parts = found
        return ObjectInfo(key, parts * len(PART), etag, 0.0, self.crc32c)


class DurableJournal(JournalWriter):
    """A journal of which every event is durable at once."""

    async def flush(self) -> None: ...


class CopyLab:
    """All of it; `verbs` are those that the sink was asked for."""

    def __init__(
        self, inline: Executor, *, server_side: Literal["none", "ranges", "objects"] = "none"
    ) -> None:
        self.verbs: list[str] = []
        self.sink = FakeSink(self.verbs)
        self.delivery = cast("Any", FakeDelivery())
        self.store = cast("Any", FakeStore())
        self.report = Report()
        retries = Retries(random.Random(1))
        identity = Journal("ab" * 16, 1, "rule", len(PART), writer="w")
        sinks = SinkPool([SinkPeer("s", self.sink.call)], stall_deadline_s=STALL_S, retries=retries)
        self.journal = DurableJournal(sinks.call, "", identity, None, interval_s=1e6)
        source = SourceStore(
            self.store, inline, deadline_s=STALL_S, progress=lambda: 0, retries=retries
        )
        store = StoreSpec("memory", "b")
        spec = TransferSpec(
            store, store, "", "to/", chunk_bytes=len(PART), server_side_copy=server_side != "none"
        )
        capabilities = StoreCapabilities(
            True, 1, 1 << 40, 10_000, 1 << 50, server_side_copy=server_side
        )
        context = TransferContext(
            spec=spec,
            server_side=ServerSideCopies(
                spec, sinks, source=capabilities, destination=capabilities
            ),
            whole_bytes=len(PART),
            source=source,
            sinks=sinks,
            delivery=self.delivery,
            capabilities=capabilities,
            report=self.report,
            retries=retries,
            clock=SYSTEM_CLOCK,
        )
        self.multipart = MultipartCopier(context, self.journal)
        recorder = Recorder(
            self.report, self.journal.state, SYSTEM_CLOCK, source_kind="s3", destination_kind="s3"
        )
        self.copier = Copier(context, self.journal, self.multipart, recorder)

    def row(self, key: str, parts: int = 3) -> Selection:
        source = ObjectInfo(key, parts * len(PART), "e", 0.0)
        return Selection(source, f"to/{key}", None, "copy", "", IF_ABSENT)
