"""Retries of a store's requests, in virtual time."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest
from tests.gateway.stores.scripted import Reply, ScriptedServer
from tests.memory_store import create_bucket, delete_bucket

from skyplane_gateway.common import errors
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.stores import ObjectStore, StoreSpec
from skyplane_gateway.stores.checksums import crc32c_text
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_gateway.stores.wrappers.rate_limiter import RateLimiter, RateLimits
from skyplane_gateway.stores.wrappers.retrying import RetryingStore, is_throttling

Failure = Callable[[], errors.StoreError]


def slow_down(retry_after_s: float | None = None) -> Failure:
    return lambda: errors.Throttled("slow down", retry_after_s=retry_after_s)


def unavailable() -> errors.StoreError:
    return errors.StoreUnavailable("try again")


class FixedJitter(random.Random):
    """Every random number is `fraction`."""

    def __init__(self, fraction: float) -> None:
        super().__init__(0)
        self._fraction = fraction

    def random(self) -> float:
        return self._fraction


@dataclass
class World:
    """Virtual time, and a memory store whose requests fail as scripted.

    Attributes:
        before: by method, the failures of the next calls, in place of the call.
        after: the same, once the call was carried out.
        storm_until_s: every request before is throttled.
        asked: method and time of every request.
    """

    inner: ObjectStore
    now_s: float = 0.0
    before: dict[str, list[Failure]] = field(default_factory=dict)
    after: dict[str, list[Failure]] = field(default_factory=dict)
    storm_until_s: float = 0.0
    asked: list[tuple[str, float]] = field(default_factory=list)
    ended_on_pause: bool = False

    def pause(self, ended: threading.Event, seconds: float) -> bool:
        self.now_s += seconds
        if self.ended_on_pause:
            ended.set()
        return ended.is_set()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)
        if not callable(call):
            return call

        def asked(*arguments: Any, **named: Any) -> Any:
            self.asked.append((name, self.now_s))
            if self.now_s < self.storm_until_s:
                raise slow_down()()
            if failures := self.before.get(name):
                raise failures.pop(0)()
            answer = call(*arguments, **named)
            if failures := self.after.get(name):
                raise failures.pop(0)()
            return answer

        return asked

    def limited(
        self,
        limits: RateLimits | None = None,
        policy: RetryPolicy | None = None,
        fraction: float = 0.5,
    ) -> RetryingStore:
        store: Any = self
        return RetryingStore(
            store,
            RateLimiter(limits, clock=Clock(monotonic=lambda: self.now_s), pause=self.pause),
            policy=policy,
            clock=Clock(monotonic=lambda: self.now_s),
            pause=self.pause,
            rng=FixedJitter(fraction),
        )


@pytest.fixture
def world() -> Iterator[World]:
    name = uuid.uuid4().hex
    create_bucket(name)
    yield World(open_without_retries(StoreSpec("memory", name)))
    delete_bucket(name)


def read_all(store: ObjectStore, key: str, length: int, if_match: str | None) -> bytes:
    body = bytearray()
    buffer = memoryview(bytearray(4))
    with store.read(key, offset=0, length=length, if_match=if_match) as reader:
        while count := reader.readinto(buffer):
            body += buffer[:count]
    return bytes(body)


# ------------------------------------------------------------------ throttling


def test_a_storm_of_30_s_is_survived_and_the_rate_recovers(world: World) -> None:
    limits = RateLimits(ceiling=100, growth_per_s=10)
    store = world.limited(limits)
    limiter = store.attempts.limiter
    for number in range(200):
        store.put(f"before/{number}", b"x")
    assert limiter._rate == 100
    world.storm_until_s = world.now_s + 30
    began = len(world.asked)
    store.put("during", b"x")
    assert world.now_s >= world.storm_until_s
    # At the old rate there would be 3,000 requests.
    assert len(world.asked) - began < 30
    assert limiter._rate < 20
    for number in range(2000):
        store.put(f"after/{number}", b"x")
    assert limiter._rate == 100
    assert len(list(store.list(""))) == 2201


def test_retry_after_holds_for_all_callers(world: World) -> None:
    one = world.limited()
    other = RetryingStore(
        one._store, one.attempts.limiter, clock=one.attempts.clock, pause=one.attempts.pause
    )
    world.before["put"] = [slow_down(12.0)]
    one.put("k", b"x")
    other.put("l", b"x")
    first, *rest = [at_s for _, at_s in world.asked]
    assert first == 0
    assert all(at_s >= 12.0 for at_s in rest)
    assert world.now_s < 30


def test_all_calls_share_the_time_limit_of_throttling(world: World) -> None:
    """Otherwise a million objects would each wait as long as the first."""
    store = world.limited(policy=RetryPolicy(throttle_s=60))
    world.storm_until_s = 1000.0
    for number in range(1000):
        with pytest.raises(errors.Throttled):
            store.put(f"k{number}", b"x")
    assert world.now_s <= 100
    # Requests continue at a low rate, so that recovery is noticed.
    assert world.asked[-1][1] >= world.now_s - 1
    world.storm_until_s = world.now_s
    world.now_s += 1.0
    store.put("k", b"x")
    # The next storm has a time limit of its own.
    world.storm_until_s = world.now_s + 50
    store.put("l", b"x")


def test_the_time_limit_of_throttling_starts_again_after_a_quiet_time(world: World) -> None:
    store = world.limited(policy=RetryPolicy(throttle_s=60))
    world.storm_until_s = 100.0
    with pytest.raises(errors.Throttled):
        store.head("k")
    world.now_s += 3600.0
    world.storm_until_s = world.now_s + 30.0
    store.put("k", b"x")


def test_a_permanent_error_ends_throttling_too(world: World) -> None:
    store = world.limited(policy=RetryPolicy(throttle_s=60))
    for _ in range(5):
        world.storm_until_s = world.now_s + 40.0
        with pytest.raises(errors.NotFound):
            store.head("k")


# ------------------------------------------------------------------ other errors


def test_a_permanent_error_is_not_retried(world: World) -> None:
    world.before["put"] = [lambda: errors.PermissionDenied("no")]
    with pytest.raises(errors.PermissionDenied):
        world.limited().put("k", b"x")
    assert [name for name, _ in world.asked] == ["put"]
    assert world.now_s < 0.1


def test_what_nobody_reads_again_is_sent_with_a_checksum(scripted: ScriptedServer) -> None:
    """A journal or a manifest, until its bytes arrive; what a source has sent may be wrong here."""
    bad = Reply(400, b"<Error><Code>BadDigest</Code></Error>")
    inner = scripted.open(bad, Reply(200, headers={"ETag": '"e"'}), bad)
    store = RetryingStore(inner, RateLimiter(RateLimits()), pause=lambda *_: False)
    assert store.put("k", b"body").etag == '"e"'
    with pytest.raises(errors.ChecksumMismatch):
        store.put("k", b"body", crc32c=crc32c(b"body"))
    sums = [request.headers["x-amz-checksum-crc32c"] for request in scripted.requests]
    assert sums == [crc32c_text(crc32c(b"body"))] * 3


@pytest.mark.parametrize("failure", [slow_down(), unavailable], ids=["throttled", "unavailable"])
def test_create_upload_is_sent_once(world: World, failure: Failure) -> None:
    """Else the caller would not know of the upload that was begun all the same."""
    store = world.limited()
    world.after["create_upload"] = [failure]
    with pytest.raises(type(failure())):
        store.create_upload("k")
    assert len(list(store.list_uploads(""))) == 1


def test_a_waiting_call_can_be_cancelled(world: World) -> None:
    world.ended_on_pause = True
    world.before["head"] = [unavailable]
    with pytest.raises(errors.Cancelled):
        world.limited().head("k")
    store = world.limited()
    store.cancel()
    with pytest.raises(errors.Cancelled):
        store.head("k")


def test_reopen_accepts_calls_for_a_limited_time(world: World) -> None:
    store = world.limited()
    store.put("k", b"x")
    store.cancel()
    with pytest.raises(errors.Cancelled):
        store.delete("k")
    store.reopen(20.0)
    store.delete("k")
    began_s = world.now_s
    world.storm_until_s = began_s + 600
    for number in range(100):
        with pytest.raises(errors.Throttled):
            store.delete(f"k{number}")
    assert world.now_s <= began_s + 20


def test_a_cancelled_wait_does_not_continue_after_reopen(world: World) -> None:
    store = world.limited()
    world.before["head"] = [unavailable]
    pause = world.pause

    def cancelled_meanwhile(ended: threading.Event, seconds: float) -> bool:
        store.cancel()
        store.reopen(20.0)
        return pause(ended, seconds)

    store.attempts.pause = cancelled_meanwhile
    with pytest.raises(errors.Cancelled):
        store.head("k")
    assert len(world.asked) == 1


def test_within_limits_the_waits_of_a_block(world: World) -> None:
    store = world.limited()
    world.storm_until_s = 100.0
    with store.within(20.0), pytest.raises(errors.Throttled):
        store.put("k", b"x")
    assert world.now_s <= 20.0
    with store.within(20.0), pytest.raises(errors.Throttled):
        store.put("k", b"x")
    assert world.now_s <= 40.0
    store.put("k", b"x")
    assert world.now_s >= 100.0


def test_a_retry_after_longer_than_the_limit_fails_all_calls_at_once(world: World) -> None:
    one = world.limited()
    other = RetryingStore(
        one._store, one.attempts.limiter, clock=one.attempts.clock, pause=one.attempts.pause
    )
    world.before["put"] = [slow_down(3600.0)]
    with pytest.raises(errors.Throttled):
        one.put("k", b"x")
    with pytest.raises(errors.Throttled):
        other.put("l", b"x")
    assert len(world.asked) == 1
    assert world.now_s < 1


def test_a_bucket_counts_as_throttling_for_a_while(world: World) -> None:
    store = world.limited()
    store.put("k", b"x")
    assert not is_throttling(store)
    world.before["put"] = [slow_down(5.0)]
    store.put("k", b"x")
    assert is_throttling(store)
    assert not is_throttling(world.inner)
    world.now_s += 60.0
    assert not is_throttling(store)


# ------------------------------------------------------------------ bodies and listings


class Breaking:
    """A reader that breaks after so many bytes."""

    def __init__(self, reader: Any, left: int) -> None:
        self._reader, self._left = reader, left
        self.attributes = reader.attributes
        self.not_carried = reader.not_carried
        self.stated = reader.stated

    def readinto(self, buffer: memoryview) -> int:
        if self._left == 0:
            raise unavailable()
        count: int = self._reader.readinto(buffer[: self._left])
        self._left -= count
        return count

    def close(self) -> None:
        self._reader.close()


def break_bodies(world: World, monkeypatch: pytest.MonkeyPatch, lengths: list[int]) -> None:
    read = world.inner.read

    def breaking(key: str, **named: Any) -> Any:
        found = read(key, **named)
        return Breaking(found, lengths.pop(0)) if lengths else found

    monkeypatch.setattr(world.inner, "read", breaking)


def test_a_read_of_one_version_continues_where_it_broke(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = world.inner.put("k", b"0123456789")
    break_bodies(world, monkeypatch, [3, 0, 5])
    assert read_all(world.limited(), "k", 10, info.etag) == b"0123456789"


def test_a_read_without_if_match_does_not_continue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.inner.put("k", b"0123456789")
    break_bodies(world, monkeypatch, [3])
    with pytest.raises(errors.StoreUnavailable):
        read_all(world.limited(), "k", 10, None)


def test_a_body_of_another_version_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = world.inner.put("k", b"0123456789")
    break_bodies(world, monkeypatch, [3])
    store = world.limited()
    with store.read("k", offset=0, length=10, if_match=info.etag) as reader:
        assert reader.readinto(memoryview(bytearray(10))) == 3
        world.inner.put("k", b"abcdefghij")
        with pytest.raises(errors.PreconditionFailed):
            reader.readinto(memoryview(bytearray(10)))


def test_a_body_that_always_breaks_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    info = world.inner.put("k", b"0123456789")
    break_bodies(world, monkeypatch, [1] * 10)
    with pytest.raises(errors.StoreUnavailable):
        read_all(world.limited(), "k", 10, info.etag)


def test_a_reader_holds_its_permit_until_it_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = world.inner.put("k", b"0123456789")
    break_bodies(world, monkeypatch, [3])
    store = world.limited(RateLimits(concurrent=2))
    limiter = store.attempts.limiter
    reader = store.read("k", offset=0, length=10, if_match=info.etag)
    assert limiter._in_flight == 1
    while reader.readinto(memoryview(bytearray(10))):
        assert limiter._in_flight == 1
    reader.close()
    reader.close()
    assert limiter._in_flight == 0
    world.before["read"] = [lambda: errors.NotFound("gone")]
    with pytest.raises(errors.NotFound):
        store.read("k", offset=0, length=10, if_match=None)
    assert limiter._in_flight == 0


def test_a_reader_that_another_thread_closes_meanwhile_leaves_no_permit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source closes the reader of a chunk that is sent again, while its thread still reads."""
    info = world.inner.put("k", b"0123456789")
    break_bodies(world, monkeypatch, [3])
    pause = world.pause

    def closing(ended: threading.Event, seconds: float) -> bool:
        reader.close()
        return pause(ended, seconds)

    monkeypatch.setattr(world, "pause", closing)
    store = world.limited(RateLimits(concurrent=2))
    reader = store.read("k", offset=0, length=10, if_match=info.etag)
    assert reader.readinto(memoryview(bytearray(10))) == 3
    with pytest.raises(errors.StoreUnavailable):
        reader.readinto(memoryview(bytearray(10)))
    assert store.attempts.limiter._in_flight == 0


def break_listing(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, lengths: list[int]
) -> None:
    found = getattr(world.inner, name)

    def breaking(prefix: str, **named: Any) -> Iterator[Any]:
        rows = found(prefix, **named)
        if not lengths:
            yield from rows
            return
        yield from islice(rows, lengths.pop(0))
        raise unavailable()

    monkeypatch.setattr(world.inner, name, breaking)


def test_a_listing_continues_after_the_last_key(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number:04d}" for number in range(2500)]
    for name in names:
        world.inner.put(name, b"")
    break_listing(world, monkeypatch, "list", [1200, 0, 700])
    assert [info.key for info in world.limited().list("")] == names


def test_an_incomplete_listing_is_not_retried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(prefix: str, *, start_after: str | None = None, wants: Any = None) -> Iterator[Any]:
        yield from world.inner.list_uploads("")
        raise errors.StoreError("a repeated token")

    monkeypatch.setattr(world.inner, "list", broken)
    with pytest.raises(errors.StoreError, match="repeated token"):
        list(world.limited().list(""))


def test_open_uploads_are_listed_once_each(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {world.inner.create_upload(f"{number:04d}") for number in range(1100)}
    break_listing(world, monkeypatch, "list_uploads", [1050])
    listed = [info.upload_id for info in world.limited().list_uploads("")]
    assert len(listed) == 1100
    assert set(listed) == ids


@pytest.mark.parametrize("size_bytes", [-1, -5_000_000_000])
def test_a_size_below_zero_is_the_stores_mistake(
    world: World, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    rows = [ObjectInfo("a", 5, "e", 0.0), ObjectInfo("k", size_bytes, "e", 0.0)]
    monkeypatch.setattr(type(world.inner), "list", lambda *_, **__: iter(rows))
    with pytest.raises(errors.StoreError, match=f"says that 'k' has {size_bytes} bytes"):
        list(world.limited().list(""))
