"""Real S3 servers with faults on the way: the result is right, or an error is raised.

Each test runs against moto and versitygw, behind the proxy of tests/faults. `plain` sends each
request once; `patient` retries, in virtual time.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.faults.http_proxy import FaultProxy, running
from tests.faults.http_rules import INTERNAL_ERROR, SLOW_DOWN, Rule, random_rules

from skyplane_gateway import errors
from skyplane_gateway.checksum import crc32c
from skyplane_gateway.clock import Clock
from skyplane_gateway.objects import IF_ABSENT, PartInfo
from skyplane_gateway.stores import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_gateway.stores.s3 import listing
from skyplane_gateway.stores.wrappers.rate_limiter import RateLimiter
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

pytestmark = pytest.mark.parametrize("harness", ["s3", "versitygw"], indirect=True)

BODY = bytes(range(256)) * 8
COMPLETION = {"method": "POST", "target": r"[?&]uploadId="}
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

    def complete(self, store: ObjectStore, upload_id: str, parts: list[PartInfo]) -> Any:
        return store.complete_upload(
            "k",
            upload_id,
            parts,
            precondition=IF_ABSENT,
            size_bytes=sum(part.size_bytes for part in parts),
            crc32c=crc32c(BODY),
        )


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
        Rule("truncate", keep_bytes=777),
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
    harmed.harm(rule, method="PUT", target="/k")
    written = harmed.patient.put("k", BODY, precondition=IF_ABSENT, crc32c=crc32c(BODY))
    assert harmed.direct.shared.head("k").etag == written.etag
    assert harmed.direct.read("k") == BODY


@pytest.mark.parametrize("rule", [LOST[0], LOST[2], NEVER_DONE[2]], ids=action)
def test_a_part_is_stored_once_if_its_response_is_lost(harmed: Harmed, rule: Rule) -> None:
    upload_id = harmed.direct.shared.create_upload("k")
    harmed.harm(rule, method="PUT", target="partNumber=1")
    part = harmed.patient.put_part("k", upload_id, 1, BODY, offset=0, crc32c=crc32c(BODY))
    (listed,) = harmed.direct.shared.list_parts("k", upload_id)
    assert (listed.etag, listed.size_bytes) == (part.etag, len(BODY))
    assert harmed.proxy.log.put_bytes == 2 * len(BODY)


@pytest.mark.parametrize(
    ("rule", "look_fails"),
    [*[(rule, False) for rule in [*LOST, NEVER_DONE[0]]], (LOST[0], True), (LOST[2], True)],
    ids=lambda value: action(value) if isinstance(value, Rule) else str(value),
)
def test_a_completion_happens_once_if_its_response_is_lost(
    harmed: Harmed, rule: Rule, look_fails: bool
) -> None:
    upload_id, parts = harmed.begin()
    harmed.harm(rule, **COMPLETION)
    if look_fails:
        harmed.harm(Rule("drop-request", "HEAD"), Rule("drop-request", "GET"))
    done = harmed.complete(harmed.patient, upload_id, parts)
    assert harmed.direct.shared.head("k").etag == done.etag
    assert harmed.direct.read("k") == BODY
    assert list(harmed.direct.shared.list_uploads("")) == []


@pytest.mark.parametrize("forward", [False, True])
def test_a_completion_with_an_error_in_a_200_response(harmed: Harmed, forward: bool) -> None:
    upload_id, parts = harmed.begin()
    harmed.harm(Rule("answer", status=200, body=INTERNAL_ERROR, forward=forward), **COMPLETION)
    if not forward:
        with pytest.raises(errors.StoreUnavailable):
            harmed.complete(harmed.plain, upload_id, parts)
        with pytest.raises(errors.NotFound):
            harmed.direct.shared.head("k")
        assert [info.upload_id for info in harmed.direct.shared.list_uploads("")] == [upload_id]
    assert harmed.complete(harmed.patient, upload_id, parts).size_bytes == len(BODY)
    assert harmed.direct.read("k") == BODY


def test_a_listing_is_complete_or_an_error(harmed: Harmed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_PAGE_KEYS", 20)
    names = [f"{number:04d}" for number in range(50)]
    harmed.direct.fill(names)
    fails = Rule("answer", "GET", "list-type", nth=2, status=500, body=INTERNAL_ERROR)
    harmed.harm(fails)
    rows = harmed.plain.list("")
    assert [next(rows).key for _ in range(20)] == names[:20]
    with pytest.raises(errors.StoreUnavailable):
        next(rows)
    harmed.proxy.schedule.clear()
    harmed.harm(fails, Rule("drop-reply", "GET", "list-type", nth=1))
    assert [info.key for info in harmed.patient.list("")] == names
    harmed.proxy.schedule.clear()
    token = rb"<NextContinuationToken>.*?</NextContinuationToken>"
    repeated = b"<NextContinuationToken>same</NextContinuationToken>"
    page = b"<ListBucketResult><IsTruncated>true</IsTruncated>%b</ListBucketResult>" % repeated
    harmed.harm(
        Rule("rewrite", "GET", "list-type", pattern=token, replacement=repeated),
        Rule("answer", "GET", "continuation-token=same", times=0, status=200, body=page),
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
        store.put("small", BODY, precondition=IF_ABSENT)
    except errors.StoreError:
        reported.add("small")
    upload_id = None
    try:
        upload_id = store.create_upload("large")
        part = store.put_part("large", upload_id, 1, BODY, offset=0, crc32c=crc32c(BODY))
        store.complete_upload(
            "large", upload_id, [part], precondition=IF_ABSENT, size_bytes=len(BODY)
        )
    except errors.StoreError:
        reported.add("large")
    try:
        listed = {info.key for info in store.list("")}
        bodies = {
            key: harmed.read(store, key, store.head(key).etag, len(BODY)) for key in sorted(listed)
        }
    finally:
        harmed.proxy.schedule.clear()
    assert listed >= {"small", "large"} - reported
    assert all(body == BODY for body in bodies.values())
    # Only `create_upload` is not retried after a lost response.
    assert reported <= {"large"}
    assert upload_id is not None or "large" in reported
