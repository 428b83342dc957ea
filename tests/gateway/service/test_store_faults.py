"""Whole transfers between real S3 servers whose answers are harmed on the way.

Every one ends with the same bytes and the same metadata at both ends, nothing open, no
journal, and every object written under its own name once.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import boto3
import pytest
from tests.faults import versitygw
from tests.faults.http_proxy import FaultProxy, running
from tests.faults.http_rules import INTERNAL_ERROR, SLOW_DOWN, Rule

from skyplane_gateway.common.errors import Stopped
from skyplane_gateway.common.objects import ObjectAttributes, StoreSpec
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.config import MIB
from skyplane_gateway.selection.selector import JOURNAL_FOLDER
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore, read_object

PART: Final = 5 * MIB
ROOMY = {"assembly_mib": 64}

#: Small ones that travel together, one of a chunk, one of parts.
BODIES: Final = {
    "p/empty": b"",
    "p/small": b"small",
    "p/whole": os.urandom(PART),
    "p/parts": os.urandom(2 * PART + 1),
}
ATTRIBUTES: Final = ObjectAttributes(
    content_type="text/x-test", cache_control="no-store", metadata=(("owner", "somebody"),)
)


@dataclass(frozen=True)
class End:
    """A bucket of a real server, and the way there that is harmed."""

    proxy: FaultProxy
    direct: StoreSpec
    spec: StoreSpec
    store: ObjectStore

    def harm(self, *rules: Rule) -> None:
        self.proxy.schedule.add(*rules)

    def objects(self) -> dict[str, tuple[bytes, ObjectAttributes | None]]:
        found = {}
        for row in self.store.list(""):
            info, body = read_object(self.store, row.key, max_bytes=64 * MIB)
            found[row.key] = (body, info.attributes and marked(info.attributes, None))
        return found

    def asked(self, method: str, target: str) -> int:
        rule = Rule("reset", method, target)
        return sum(rule.fits(row.method, row.target) for row in self.proxy.log.exchanges)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[versitygw.Server]:
    try:
        with versitygw.running(tmp_path_factory.mktemp("versitygw")) as made:
            yield made
    except versitygw.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def ends(server: versitygw.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[End, End]]:
    """Source, filled, and destination, empty."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
    # The default session of boto3 would keep the keys of an earlier test.
    session = boto3.Session(server.access_key_id, server.secret_access_key)
    client = session.client("s3", endpoint_url=server.url, region_name="us-east-1")
    with running(server.url) as before_source, running(server.url) as before_destination:
        made = []
        for proxy in (before_source, before_destination):
            bucket = f"b-{uuid.uuid4().hex[:12]}"
            client.create_bucket(Bucket=bucket)
            direct = StoreSpec("s3", bucket, server.url, "us-east-1")
            spec = replace(direct, endpoint_url=proxy.url)
            made.append(End(proxy, direct, spec, open_store(direct)))
        for key, body in BODIES.items():
            made[0].store.put(key, body, attributes=ATTRIBUTES)
        yield made[0], made[1]
        for end in made:
            end.store.close()
    client.close()


@pytest.fixture
def copied(fleet_of: Any, kit: Any, ends: tuple[End, End]) -> Callable[..., dict[str, Any]]:
    """Copies from one end to the other over a relay; the status at the end.

    Takes options of the destination.
    """

    async def scenario(**options: str) -> dict[str, Any]:
        source, destination = (end.spec for end in ends)
        destination = replace(destination, options=tuple(sorted(options.items())))
        spec = kit.copy_spec(source, destination, chunk_bytes=PART)
        async with fleet_of(kit.route(0, "a", "r", "b"), **ROOMY) as fleet:
            return dict(await fleet.run(spec))

    return lambda **options: asyncio.run(scenario(**options))


def all_is_well(ends: tuple[End, End], status: dict[str, Any]) -> None:
    source, destination = ends
    assert (status["state"], status["error"]) == ("succeeded", None)
    assert status["copied"] == len(BODIES)
    # Journals included: none is left.
    assert destination.objects() == source.objects()
    assert {key: body for key, (body, _) in source.objects().items()} == BODIES
    assert list(destination.store.list_uploads("")) == []


_NO_CHECKSUM: Final = Rule(
    "answer",
    "PUT",
    without=r"(x-amz-checksum-\w+|Content-MD5): \S",
    times=0,
    status=400,
    body=INTERNAL_ERROR.replace(b"InternalError", b"InvalidRequest"),
)
_NO_CONDITIONS: Final = Rule(
    "answer",
    "PUT|POST|DELETE",
    header="^If-(None-)?Match:",
    times=0,
    status=501,
    body=INTERNAL_ERROR.replace(b"InternalError", b"NotImplemented"),
)
#: What a service does not do -> its rule, and the options that make up for it.
SERVICES: Final[dict[str, tuple[Rule, dict[str, str]]]] = {
    "bodies without a checksum (Object Lock)": (_NO_CHECKSUM, {}),
    "new checksums": (_NO_CHECKSUM, {"checksum": "none"}),
    "conditional writes": (_NO_CONDITIONS, {"preconditions": "checked"}),
}


@pytest.mark.long
@pytest.mark.parametrize("lacks", SERVICES)
def test_a_service_without(
    lacks: str, ends: tuple[End, End], copied: Callable[..., dict[str, Any]]
) -> None:
    rule, options = SERVICES[lacks]
    ends[1].harm(rule)
    all_is_well(ends, copied(**options))


def test_a_service_without_conditional_writes_is_told_from_others(
    ends: tuple[End, End], copied: Callable[..., dict[str, Any]]
) -> None:
    ends[1].harm(_NO_CONDITIONS)
    status = copied()
    assert status["state"] == "failed"
    assert "option preconditions=checked" in str(status["error"])


KEY: Final = r"/p/(small|whole|parts)"
COMPLETION: Final = r"[?&]uploadId="


def after_its_effect(method: str, target: str, *, times: int = 1) -> Rule:
    return Rule(
        "answer", method, target, times=times, status=500, body=INTERNAL_ERROR, forward=True
    )


#: name of the case -> at which end, what goes wrong, least number of times that is asked.
HARMS: Final[dict[str, tuple[int, Rule, int]]] = {
    "18 the whole in place of a range": (0, Rule("whole", "GET", "/p/parts", times=2), 5),
    "19 SlowDown": (1, Rule("answer", "PUT", KEY, times=4, body=SLOW_DOWN), 8),
    "20 500 after a write": (1, after_its_effect("PUT", KEY, times=3), 5),
    "20 SlowDown after an upload began": (
        1,
        Rule("answer", "POST", r"\?uploads", times=2, body=SLOW_DOWN, forward=True),
        3,
    ),
    "20 no answer to the completion": (1, Rule("drop-reply", "POST", COMPLETION), 1),
    "22 a part that the store has not kept": (
        1,
        Rule(
            "answer",
            "POST",
            COMPLETION,
            status=400,
            body=INTERNAL_ERROR.replace(b"InternalError", b"InvalidPart"),
        ),
        2,
    ),
}


@pytest.mark.parametrize("case", sorted(HARMS))
def test_a_transfer_survives_faulty_responses_of_a_store(
    case: str, ends: tuple[End, End], copied: Callable[[], dict[str, Any]]
) -> None:
    side, rule, least = HARMS[case]
    ends[side].harm(rule)
    all_is_well(ends, copied())
    asked = ends[side].asked(rule.method, rule.target)
    assert asked >= least
    if rule.target == COMPLETION:
        assert asked == least, "what was done is not done twice"


def test_20_an_upload_that_may_not_be_looked_for_is_left_with_its_journal(
    ends: tuple[End, End], copied: Callable[[], dict[str, Any]]
) -> None:
    destination = ends[1]
    denied = INTERNAL_ERROR.replace(b"InternalError", b"AccessDenied")
    destination.harm(
        Rule("drop-reply", "POST", r"\?uploads"),
        Rule("answer", "GET", r"\?uploads", times=0, status=403, body=denied),
    )
    status = copied()
    assert (status["state"], status["copied"]) == ("succeeded", len(BODIES))
    assert [row.key for row in destination.store.list_uploads("")] == ["p/parts"]
    assert [key for key in destination.objects() if JOURNAL_FOLDER in key]


def test_21_an_error_inside_of_200_is_no_success(
    ends: tuple[End, End], copied: Callable[[], dict[str, Any]]
) -> None:
    """The object has failed with the reason, and the others are there."""
    source, destination = ends
    inside = INTERNAL_ERROR.replace(b"InternalError", b"AccessDenied")
    destination.harm(Rule("answer", "POST", COMPLETION, times=0, status=200, body=inside))
    status = copied()
    assert (status["state"], status["copied"], status["failed"]) == ("failed", 3, 1)
    (failure,) = status["failures"]
    assert (failure["destination"], failure["code"]) == ("p/parts", "permission-denied")
    found = {key: row for key, row in destination.objects().items() if key.startswith("p/")}
    wanted = source.objects()
    del wanted["p/parts"]
    assert found == wanted
    assert list(destination.store.list_uploads("")) == []


def test_22_an_upload_that_is_gone_when_the_transfer_is_resumed(
    fleet_of: Any, kit: Any, ends: tuple[End, End]
) -> None:
    """That object alone is uploaded again; another that was begun goes on by its parts."""
    source, destination = ends
    begun = {"q/gone": os.urandom(3 * PART), "q/kept": os.urandom(3 * PART)}
    for key, body in begun.items():
        source.store.put(key, body, attributes=ATTRIBUTES)
    # The first parts of both arrive, the others never do.
    destination.harm(Rule("hold", "PUT", r"/q/.*partNumber=[23]", times=0))
    transfer = uuid.uuid4().hex

    async def scenario() -> None:
        both = {"source_prefix": "q/", "destination_prefix": "q/"}
        spec = kit.copy_spec(source.spec, destination.spec, chunk_bytes=PART, **both)
        # Room for every part, so that those that are held are in nobody's way.
        roomy = {**ROOMY, "store_threads": 8}
        async with fleet_of(kit.route(0, "a", "b"), **roomy) as fleet:
            await fleet.attach(transfer, source.spec, destination.spec)
            await fleet.submit(transfer, spec)
            await fleet.until(lambda: len(first_parts(destination)) == len(begun))
            await fleet.service("a").leads.stop(transfer, Stopped("as the test has it"))
            uploads = {row.key: row.upload_id for row in destination.store.list_uploads("")}
            assert set(uploads) == set(begun)
            # While no part is on its way to the store: it would keep what comes too late.
            destination.store.abort_upload("q/gone", uploads["q/gone"])
            destination.proxy.schedule.clear()
            destination.proxy.release(drop=True)
            before = len(destination.proxy.log.exchanges)
            await fleet.attach(transfer, source.spec, destination.spec, epoch=2)
            await fleet.submit(transfer, spec, epoch=2)
            status = await fleet.ended(transfer)
            await fleet.heard(transfer, spec, epoch=2)
        assert (status["state"], status["failures"]) == ("succeeded", [])
        resumed = [row for row in destination.proxy.log.exchanges[before:] if row.method == "PUT"]
        # What was held may be tried again, in vain: its upload is gone, or its epoch over.
        done = [row.target for row in resumed if row.store_status == 200]
        assert not [target for target in done if "/q/kept" in target and "partNumber=1" in target]
        assert len([target for target in done if "/q/gone" in target]) == 3

    asyncio.run(scenario())
    found = destination.objects()
    assert found == {key: row for key, row in source.objects().items() if key in begun}
    assert list(destination.store.list_uploads("")) == []


def first_parts(end: End) -> set[str]:
    """Requests by which the store has taken a first part."""
    return {
        row.target
        for row in end.proxy.log.exchanges
        if row.method == "PUT" and "partNumber=1" in row.target and row.store_status == 200
    }
