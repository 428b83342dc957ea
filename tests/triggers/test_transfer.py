"""The trigger polls without blocking, yields one event, and cancels when a user ends the task."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.fake_client import NODE, FakeClient
from tests.manual_clock import ManualClock
from tests.transfer import samples

from skyplane_orchestration.errors import ConfigurationInvalid, GatewayUnreachable
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer, WatchEnd
from skyplane_orchestration.triggers.transfer import SkyplaneTransferTrigger


@dataclass
class FakeWatch:
    answers: list[WatchEnd | None]
    has_answered: bool = True
    left: int = 0

    def poll(self) -> WatchEnd | None:
        return self.answers.pop(0)

    def leave(self) -> None:
        self.left += 1


@dataclass
class WatchingClient(FakeClient):
    watch_: FakeWatch = field(default_factory=lambda: FakeWatch([None, None, "ended"]))

    def watch(self, watched: WatchedTransfer, **_: Any) -> FakeWatch:
        return self.watch_


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> WatchingClient:
    client = WatchingClient()
    monkeypatch.setattr(SkyplaneTransferTrigger, "_client", lambda _: client)
    return client


def trigger_of(client: FakeClient, **options: Any) -> SkyplaneTransferTrigger:
    submitted = SubmittedTransfer(samples.KEY, 1, NODE, joined=False)
    watched = WatchedTransfer(samples.JOB, client._fleet(), submitted, owns_fleet=True)
    options = {"poll_interval_s": 1.0, "cancel_on_kill": True, **options}
    return SkyplaneTransferTrigger.of(client, watched, "skyplane_default", **options)  # type: ignore[arg-type]


def events_of(trigger: SkyplaneTransferTrigger, clock: ManualClock | None = None) -> list[Any]:
    clock = clock or ManualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    trigger.clock, trigger.sleep = clock.clock, sleep

    async def collect() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    return asyncio.run(collect())


def test_it_polls_until_the_end(client: WatchingClient) -> None:
    trigger = trigger_of(client)
    assert events_of(trigger) == [
        {"end": "ended", "has_answered": True, "message": "", "watched": trigger.watched}
    ]
    assert client.watch_.answers == []
    assert client.watch_.left == 1


@pytest.mark.parametrize("polls", [1, 3, 12])
def test_its_event_comes_ten_seconds_after_the_deferral_or_later(
    client: WatchingClient, polls: int
) -> None:
    """Airflow fails a task whose trigger fires while the scheduler still records the deferral."""
    client.watch_ = FakeWatch([*[None] * (polls - 1), "ended"])
    clock = ManualClock()
    assert len(events_of(trigger_of(client, poll_interval_s=5.0), clock)) == 1
    waited_s = clock.now_s - 1000.0
    assert waited_s == 10.0 if polls < 12 else waited_s > 10.0


def test_a_lead_that_is_silent_is_not_told_to_forget_the_trigger(client: WatchingClient) -> None:
    client.watch_ = FakeWatch(["silent"], has_answered=False)
    assert [(e["end"], e["has_answered"]) for e in events_of(trigger_of(client))] == [
        ("silent", False)
    ]
    assert client.watch_.left == 0


def test_an_error_at_once_wakes_the_worker_after_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_client(_: object) -> None:
        raise ConfigurationInvalid("there is no connection 'other'")

    monkeypatch.setattr(SkyplaneTransferTrigger, "_client", no_client)
    clock = ManualClock()
    (event,) = events_of(trigger_of(FakeClient()), clock)
    assert (event["end"], clock.now_s) == ("error", 1010.0)
    assert "no connection" in event["message"]


def test_on_kill_cancels_unless_it_shall_not(client: WatchingClient) -> None:
    asyncio.run(trigger_of(client, cancel_on_kill=False).on_kill())
    assert client.verbs == []
    asyncio.run(trigger_of(client).on_kill())
    assert client.verbs == ["cancel", "teardown"]


def test_on_kill_tolerates_a_fleet_that_is_gone(client: WatchingClient) -> None:
    client.fail("cancel", GatewayUnreachable("gone"))
    asyncio.run(trigger_of(client).on_kill())
