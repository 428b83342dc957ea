"""What a lead learns of both ends."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import Executor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.manual_clock import ManualClock
from tests.memory_store import MemoryStore, create_bucket

from skyplane_gateway.common.objects import (
    IF_ABSENT,
    ObjectAttributes,
    ObjectInfo,
    StoreSpec,
    time_pin,
)
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.lead.both_ends import BothEnds
from skyplane_gateway.lead.fresh_sources import FreshSources
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.lead.source_store import SourceStore
from skyplane_gateway.selection.difference import ComparisonAnswer, Ends
from skyplane_gateway.selection.questions import ComparisonQuestion
from skyplane_gateway.selection.selector import Selection
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.stores.server_clock import ServerClock

NOW_S = 1_700_000_000.0


class Lab:
    """Both ends in memory, whose servers have clocks of their own."""

    def __init__(self, inline: Executor, kinds: tuple[str, str] = ("memory", "memory")) -> None:
        self.clock = ManualClock(NOW_S)
        for name in ("here", "there"):
            create_bucket(f"ends-{name}")
        self.here = cast("Any", MemoryStore(StoreSpec("memory", "ends-here")))
        self.there = cast("Any", MemoryStore(StoreSpec("memory", "ends-there")))
        self.here.server_clock = ServerClock(self.clock.clock)
        self.there.server_clock = ServerClock()
        retries = Retries(random.Random(1))
        source = SourceStore(self.here, inline, deadline_s=9.0, progress=lambda: 0, retries=retries)
        self.sink_clock = ManualClock(NOW_S)
        self.destination = Destination(self.there, "stored", self.sink_clock.clock)
        self.verbs: list[str] = []
        self.context = cast(
            "Any",
            SimpleNamespace(
                spec=TransferSpec(
                    source=StoreSpec(kinds[0], "b"),
                    destination=StoreSpec(kinds[1], "b"),
                    source_prefix="",
                    destination_prefix="",
                ),
                source=source,
                sinks=SimpleNamespace(call=self._call),
                report=Report(),
                retries=retries,
                clock=self.clock.clock,
            ),
        )

    @staticmethod
    def loop_s() -> float:
        return asyncio.get_running_loop().time()

    async def _call(self, verb: str, arguments: Any) -> dict[str, Any]:
        self.verbs.append(verb)
        return self.destination.run(verb, arguments)


def asked(question: Any, key: str) -> ComparisonQuestion:
    return ComparisonQuestion(
        question, ObjectInfo(key, 1, "e", 0.0), ObjectInfo(f"to/{key}", 1, "e", 0.0)
    )


async def test_it_answers_each_question_in_order(inline: Executor) -> None:
    lab = Lab(inline)
    attributes = ObjectAttributes(metadata=(("a", "b"),))
    here = [lab.here.put(key, b"x", attributes=attributes) for key in "ab"]
    there = [lab.there.put(f"to/{key}", b"y", attributes=attributes) for key in "bc"]
    answers = await BothEnds(lab.context).ask(
        [
            asked("source", "a"),
            asked("destination", "b"),
            asked("destination", "gone"),
            asked("checksums", "b"),
            asked("source", "gone"),
            asked("destination", "c"),
        ]
    )
    assert [(row.source, row.destination) for row in answers[:3]] == [
        (here[0], None),
        (None, there[0]),
        (None, None),
    ]
    compared = answers[3]
    assert compared.source is not None
    assert compared.destination is not None
    assert compared.source.crc32c != compared.destination.crc32c
    assert answers[4:] == [ComparisonAnswer(), ComparisonAnswer(destination=there[1])]
    assert sorted(lab.verbs) == ["head", "look_at_all"], "one call for all HEADs"


@pytest.mark.parametrize(("source_s", "there_s"), [(0, 0), (0, 600), (600, 0), (-600, 50)])
async def test_clocks_of_both_servers_are_compared_by_the_dates_of_their_answers(
    inline: Executor, source_s: int, there_s: int
) -> None:
    lab = Lab(inline)
    ends = BothEnds(lab.context)
    assert ends.ends() == Ends("memory", "memory", 0.0, source_name="memory://b/")
    # The sink's own clock is wrong too.
    lab.sink_clock.now_s = NOW_S - 5000
    lab.there.server_clock.ahead_s = 5000 + there_s
    lab.here.server_clock.ahead_s = source_s
    await ends.fetch_page("", None)
    assert ends.ends() == Ends("memory", "memory", there_s - source_s, source_name="memory://b/")


@pytest.mark.parametrize(
    ("date", "ahead_s"),
    [
        ("Tue, 14 Nov 2023 22:23:20 GMT", 600.0),
        ("Tue, 14 Nov 2023 22:13:20 GMT", 0.0),
        (None, 77.0),
        ("", 77.0),
        ("yesterday", 77.0),
    ],
)
def test_a_date_tells_the_clock_of_a_server(date: str | None, ahead_s: float) -> None:
    clock = ServerClock(ManualClock(NOW_S).clock)
    clock.ahead_s = 77.0
    clock.note(date)
    assert clock.ahead_s == ahead_s


@pytest.mark.parametrize(
    ("kinds", "age_s", "etag", "waits_s"),
    [
        (("s3", "file"), 0.25, "e", 0.75),
        (("s3", "file"), 1.0, "e", 0.0),
        (("s3", "file"), -1.0, "e", 2.0),
        (("s3", "file"), -3600.0, "e", 0.0),
        (("s3", "s3"), 0.25, "e", 0.0),
        (("file", "file"), 0.25, "e", 0.0),
        (("s3", "s3"), 0.25, time_pin(NOW_S, 1), 0.75),
    ],
)
async def test_a_second_ends_before_its_object_is_read_that_is_known_by_the_second(
    inline: Executor, kinds: tuple[str, str], age_s: float, etag: str, waits_s: float
) -> None:
    """Else a second write in the same second would look like the first for ever."""
    lab = Lab(inline, kinds)
    lab.here.server_clock.ahead_s = 40.0
    lab.clock.now_s = NOW_S - 40.0 + age_s
    source = ObjectInfo("k", 1, etag, NOW_S)
    row = Selection(source, "to/k", None, "copy", "", IF_ABSENT)
    loop_s = lab.loop_s()
    await FreshSources(lab.context).wait([row])
    assert lab.loop_s() - loop_s == pytest.approx(waits_s, abs=1e-6)


@pytest.mark.parametrize("end", [0, 1])
def test_the_option_to_ignore_an_md5_counts_for_both(inline: Executor, end: int) -> None:
    lab = Lab(inline)
    specs = [StoreSpec("s3", "b"), StoreSpec("s3", "b")]
    specs[end] = StoreSpec("s3", "b", options=(("content-md5", "ignore"),))
    lab.context.spec = replace(lab.context.spec, source=specs[0], destination=specs[1])
    assert BothEnds(lab.context).ends() == Ends("s3", "s3", uses_md5=False, source_name="s3://b/")
