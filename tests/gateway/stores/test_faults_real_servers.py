"""Real servers and emulators with faults on the way: the result is right, or an error is raised.

Each test runs against moto, versitygw, fake-gcs-server and Azurite, behind the proxy of
tests/faults. `plain` sends each request once; `patient` retries, in virtual time.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.faults.http_proxy import FaultProxy, running
from tests.faults.http_rules import INTERNAL_ERROR, SLOW_DOWN, Rule, random_rules
from tests.gateway.stores.by_sink import complete_by_sink, put_by_sink

from skyplane_gateway.common import errors
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.objects import PartInfo
from skyplane_gateway.stores import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_gateway.stores.wrappers.rate_limiter import RateLimiter
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

pytestmark = pytest.mark.parametrize("harness", ["azure", "gcs", "s3", "versitygw"], indirect=True)

#: Arguments of a `Rule` that choose requests.
Where = Mapping[str, Any]


@dataclass(frozen=True)
class Traffic:
    """The requests of verbs to one kind of store.

    Attributes:
        completion: makes the object of the parts.
        around: the other requests of a completion.
        page: of a listing; `token` is found in its answer, `repeated` replaces it.
        last_page: an answer of a server that gives that token again and again.
    """

    put: Where
    part: Where
    completion: Where
    around: tuple[Where, ...]
    page: Where
    token: bytes
    repeated: bytes
    last_page: bytes


_S3_TOKEN = b"<NextContinuationToken>same</NextContinuationToken>"
TRAFFIC = {
    "s3": Traffic(
        put={"method": "PUT", "target": "/k"},
        part={"method": "PUT", "target": "partNumber=1"},
        completion={"method": "POST", "target": "[?&]uploadId="},
        around=({"method": "HEAD"},),
        page={"method": "GET", "target": "list-type"},
        token=rb"<NextContinuationToken>.*?</NextContinuationToken>",
        repeated=_S3_TOKEN,
        last_page=b"<ListBucketResult><IsTruncated>true</IsTruncated>%b</ListBucketResult>"
        % _S3_TOKEN,
    ),
    "gcs": Traffic(
        put={"method": "POST", "target": "/upload/storage/v1/.*name="},
        part={"method": "POST", "target": "/upload/storage/v1/.*name=.*00001"},
        completion={"method": "POST", "target": "/compose"},
        around=(
            {"method": "DELETE", "target": r"\.upload"},
            {"method": "DELETE", "target": "00001"},
            {"method": "GET", "target": "prefix="},
            {"method": "GET", "target": "alt=media"},
        ),
        page={"method": "GET", "target": "prefix="},
        token=rb'"nextPageToken":\s*".*?"',
        repeated=b'"nextPageToken":"same"',
        last_page=b'{"kind":"storage#objects","nextPageToken":"same"}',
    ),
    "azure": Traffic(
        put={"method": "PUT", "target": "/k"},
        part={"method": "PUT", "target": "comp=block&"},
        completion={"method": "PUT", "target": "comp=blocklist"},
        around=(
            {"method": "GET", "target": r"\.skyplane"},
            {"method": "DELETE", "target": r"\.skyplane"},
            {"method": "HEAD"},
        ),
        page={"method": "GET", "target": "comp=list"},
        token=b"<NextMarker>.*?</NextMarker>",
        repeated=b"<NextMarker>same</NextMarker>",
        last_page=b"<EnumerationResults><Blobs/><NextMarker>same</NextMarker></EnumerationResults>",
    ),
}

BODY = bytes(range(256)) * 8
LOST = [
    Rule("answer", status=500, body=INTERNAL_ERROR, forward=True),
    Rule("answer", status=503, body=SLOW_DOWN, forward=True),
    Rule("drop-reply"),
    Rule("reset"),
]
NEVER_DONE = [
    Rule("answer", status=500, body=INTERNAL_ERROR),
    Rule("answer", status=503, body=SLOW_DOWN),
    Rule("drop-request"),
]


@dataclass
class Harmed:
    """A bucket behind a proxy.

    Attributes:
        direct: opens it without the proxy.
        waits_s: every wait of the patient store; none of them is real.
    """

    direct: Any
    proxy: FaultProxy
    plain: ObjectStore
    waits_s: list[float] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        def pause(ended: threading.Event, seconds: float) -> bool:
            self.waits_s.append(seconds)
            self.now_s += seconds
            return False

        clock = Clock(monotonic=lambda: self.now_s)
        limiter = RateLimiter(clock=clock, pause=pause)
        self.patient = RetryingStore(
            self.plain, limiter, clock=clock, pause=pause, rng=random.Random(1)
        )

    @property
    def traffic(self) -> Traffic:
        return TRAFFIC[self.direct.spec.kind]

    def harm(self, *rules: Rule, **where: Any) -> None:
        self.proxy.schedule.add(*[replace(rule, **where) for rule in rules])

    def asked(self, method: str, target: str = "") -> int:
        rule = Rule("reset", method, target)
        return sum(rule.fits(each.method, each.target) for each in self.proxy.log.exchanges)

    def read(self, store: ObjectStore, key: str, etag: str | None, size: int) -> bytes:
        body, buffer = bytearray(), memoryview(bytearray(1000))
        with store.read(key, offset=0, length=size, if_match=etag) as reader:
            while count := reader.readinto(buffer):
                body += buffer[:count]
        return bytes(body)

    def begin(self, body: bytes = BODY) -> tuple[str, list[PartInfo]]:
        """An upload of one part, without faults."""
        store = self.direct.shared
        upload_id = store.create_upload("k")
        return upload_id, self.direct.put_parts("k", upload_id, [body])


@pytest.fixture
def harmed(harness: Any) -> Iterator[Harmed]:
    assert harness.spec.endpoint_url is not None
    with running(harness.spec.endpoint_url) as proxy:
        spec = replace(harness.spec, endpoint_url=proxy.url)
        plain = open_without_retries(spec, harness.credentials)
        yield Harmed(harness, proxy, plain)
        plain.close()


def action(rule: Rule) -> str:
    return f"{rule.action}-{rule.status}" if rule.action == "answer" else rule.action


@pytest.mark.parametrize(
    "rule",
    [
        Rule("truncate", keep_bytes=0),
        Rule("truncate", keep_bytes=len(BODY) - 1),
        Rule("whole"),
    ],
    ids=lambda rule: f"{rule.action}-{rule.keep_bytes}",
)
def test_a_range_that_ends_early_is_read_again(harmed: Harmed, rule: Rule) -> None:
    info = harmed.direct.shared.put("k", BODY + b"and more")
    harmed.harm(rule, method="GET", target="/k", times=2)
    with pytest.raises(errors.StoreUnavailable) as caught:
        harmed.read(harmed.plain, "k", info.etag, len(BODY))
    assert not caught.value.is_permanent
    assert harmed.read(harmed.patient, "k", info.etag, len(BODY)) == BODY
    assert harmed.asked("GET", "/k") == 3


@pytest.mark.parametrize("rule", LOST + NEVER_DONE, ids=action)
def test_a_write_happens_once_if_its_response_is_lost(harmed: Harmed, rule: Rule) -> None:
    harmed.harm(rule, **harmed.traffic.put)
    written = put_by_sink(harmed.patient, "k", BODY)
    assert harmed.direct.shared.head("k").etag == written.etag
    assert harmed.direct.read("k") == BODY


@pytest.mark.parametrize("rule", [LOST[0], LOST[2], NEVER_DONE[2]], ids=action)
def test_a_part_is_stored_once_if_its_response_is_lost(harmed: Harmed, rule: Rule) -> None:
    upload_id = harmed.direct.shared.create_upload("k")
    harmed.harm(rule, **harmed.traffic.part)
    part = harmed.patient.put_part("k", upload_id, 1, BODY, offset=0, crc32c=crc32c(BODY))
    (listed,) = harmed.direct.shared.list_parts("k", upload_id)
    assert (listed.etag, listed.size_bytes) == (part.etag, len(BODY))
    assert harmed.asked(**harmed.traffic.part) == 2


@pytest.mark.parametrize(
    ("rule", "look_fails"),
    [*[(rule, False) for rule in [*LOST, NEVER_DONE[0]]], (LOST[0], True), (LOST[2], True)],
    ids=lambda value: action(value) if isinstance(value, Rule) else str(value),
)
def test_a_completion_happens_once_if_its_response_is_lost(
    harmed: Harmed, rule: Rule, look_fails: bool
) -> None:
    upload_id, parts = harmed.begin()
    harmed.harm(rule, **harmed.traffic.completion)
    if look_fails:
        harmed.harm(Rule("drop-request", "HEAD"), Rule("drop-request", "GET"))
    done = complete_by_sink(harmed.patient, upload_id, parts, BODY)
    assert harmed.direct.shared.head("k").etag == done["etag"]
    assert harmed.direct.read("k") == BODY
    assert list(harmed.direct.shared.list_uploads("")) == []


@pytest.mark.parametrize("rule", [LOST[0], LOST[2], NEVER_DONE[0], NEVER_DONE[2]], ids=action)
def test_a_completion_is_whole_whatever_fails_around_it(harmed: Harmed, rule: Rule) -> None:
    for where in harmed.traffic.around:
        upload_id, parts = harmed.begin()
        harmed.harm(rule, **where)
        done = complete_by_sink(harmed.patient, upload_id, parts, BODY)
        assert harmed.direct.shared.head("k").etag == done["etag"]
        assert harmed.direct.read("k") == BODY
        # What cannot be removed after the commit is named, and a sweep removes it.
        left = list(harmed.direct.shared.list_uploads(""))
        assert not left or done.get("leftover")
        for upload in left:
            harmed.direct.shared.abort_upload(upload.key, upload.upload_id)
        assert list(harmed.direct.shared.list_uploads("")) == []
        harmed.direct.shared.delete("k")


@pytest.mark.parametrize("forward", [False, True])
def test_a_completion_with_an_error_in_a_200_response(harmed: Harmed, forward: bool) -> None:
    upload_id, parts = harmed.begin()
    rule = Rule("answer", status=200, body=INTERNAL_ERROR, forward=forward)
    harmed.harm(rule, **harmed.traffic.completion)
    if not forward:
        with pytest.raises(errors.StoreUnavailable) as caught:
            complete_by_sink(harmed.plain, upload_id, parts, BODY)
        assert not caught.value.is_permanent
        with pytest.raises(errors.NotFound):
            harmed.direct.shared.head("k")
        assert [info.upload_id for info in harmed.direct.shared.list_uploads("")] == [upload_id]
    complete_by_sink(harmed.patient, upload_id, parts, BODY)
    assert harmed.direct.read("k") == BODY


@pytest.mark.parametrize("status", [429, 503])
def test_a_storm_of_refusals_is_waited_for(harmed: Harmed, status: int) -> None:
    storm = Rule("answer", status=status, body=SLOW_DOWN, headers=(("Retry-After", "6"),), times=5)
    harmed.harm(storm)
    harmed.patient.put("k", BODY)
    assert harmed.now_s >= 30
    assert harmed.direct.read("k") == BODY


def test_a_listing_is_complete_or_an_error(harmed: Harmed, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, traffic = harmed.direct.spec.kind, harmed.traffic
    monkeypatch.setattr(f"skyplane_gateway.stores.{kind}.listing._PAGE_KEYS", 20)
    names = [f"{number:04d}" for number in range(50)]
    harmed.direct.fill(names)
    fails = Rule("answer", **traffic.page, nth=2, status=500, body=INTERNAL_ERROR)
    harmed.harm(fails)
    seen: list[str] = []
    with pytest.raises(errors.StoreUnavailable):
        seen += (row.key for row in harmed.plain.list(""))
    harmed.proxy.schedule.clear()
    harmed.harm(fails, Rule("drop-reply", **traffic.page, nth=1))
    assert [info.key for info in harmed.patient.list("")] == names
    harmed.proxy.schedule.clear()
    harmed.harm(
        Rule("rewrite", **traffic.page, pattern=traffic.token, replacement=traffic.repeated),
        Rule("answer", **traffic.page, times=0, status=200, body=traffic.last_page),
    )
    with pytest.raises(errors.StoreError, match="cannot be relied on"):
        list(harmed.patient.list(""))


@pytest.mark.parametrize("seed", range(8))
def test_after_random_faults_objects_are_equal_or_reported(harmed: Harmed, seed: int) -> None:
    """Seeds replay: `random_rules(seed, ...)` gives the same faults to the same requests."""
    harmed.proxy.schedule.add(*random_rules(seed, 5, within=4))
    store = harmed.patient
    reported = set()
    try:
        put_by_sink(store, "small", BODY)
    except errors.StoreError:
        reported.add("small")
    upload_id = None
    try:
        upload_id = store.create_upload("k")
        part = store.put_part("k", upload_id, 1, BODY, offset=0, crc32c=crc32c(BODY))
        complete_by_sink(store, upload_id, [part], BODY)
    except errors.StoreError:
        reported.add("k")
    try:
        listed = {info.key for info in store.list("")}
        bodies = {
            key: harmed.read(store, key, store.head(key).etag, len(BODY)) for key in sorted(listed)
        }
    finally:
        harmed.proxy.schedule.clear()
    assert listed >= {"small", "k"} - reported
    assert all(body == BODY for body in bodies.values())
    # Only `create_upload` is not retried after a lost response.
    assert reported <= {"k"}
    assert upload_id is not None or "k" in reported
