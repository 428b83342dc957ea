"""Renewal of credentials, in virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.errors import Cancelled, CredentialsExpired
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores.wrappers.credential_renewal import TIMEOUT_S, CredentialRenewal
from skyplane_gateway.stores.wrappers.rate_limiter import RateLimiter
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

EXPIRED = CredentialsExpired("ExpiredToken")
BEGAN_UNIX_S = 1_700_000_000.0


def credentials(name: str, life_s: float | None = None) -> Credentials:
    values = {"access_key_id": name, "secret_access_key": "s"}
    if life_s is not None:
        values["expires_at"] = str(int(BEGAN_UNIX_S + life_s))
    return Credentials(values)


@dataclass
class World:
    """The time, and the credentials that the store accepts."""

    now_s: float = 0.0
    good: set[str | None] = field(default_factory=set)
    opened: list[str | None] = field(default_factory=list)
    closed: int = 0
    #: Called at every pause.
    meanwhile: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.clock = Clock(lambda: self.now_s, lambda: BEGAN_UNIX_S + self.now_s)

    def pause(self, ended: threading.Event, seconds: float) -> bool:
        self.now_s += seconds
        self.meanwhile()
        return ended.is_set()

    def open(self, given: Credentials | None) -> Any:
        name = given["access_key_id"] if given is not None else None
        self.opened.append(name)

        def ask(*_: Any) -> str:
            if name not in self.good:
                raise EXPIRED
            return f"by {name}"

        def close() -> None:
            self.closed += 1

        return SimpleNamespace(create_upload=ask, spec=None, close=close)

    def renewal(self, given: Credentials | None) -> CredentialRenewal:
        return CredentialRenewal(
            self.open,
            given,
            clock=self.clock,
            pause=self.pause,
        )

    def store(self, given: Credentials | None, *, waits: bool = True) -> RetryingStore:
        made = RetryingStore(
            SimpleNamespace(spec=None),
            RateLimiter(clock=self.clock, pause=self.pause),
            renewal=self.renewal(given),
            clock=self.clock,
            pause=self.pause,
        )
        if waits:
            made.wait_for_credentials()
        return made


# ------------------------------------------------------------------ at 75 % of their life


def test_credentials_are_needed_at_three_quarters_of_their_life() -> None:
    world = World()
    renewal = world.renewal(credentials("old", life_s=3600))
    for now_s, is_needed in ((0.0, False), (2699.0, False), (2700.0, True), (9999.0, True)):
        world.now_s = now_s
        assert renewal.is_needed is is_needed
    world.now_s = 2800.0
    renewal.replace(credentials("new", life_s=2800 + 1000))
    assert not renewal.is_needed
    world.now_s = 2800 + 750.0
    assert renewal.is_needed


def test_the_same_credentials_are_not_fresh() -> None:
    world = World()
    renewal = world.renewal(credentials("old", life_s=3600))
    world.now_s = 2700.0
    renewal.replace(credentials("old", life_s=3600))
    assert renewal.is_needed
    assert world.opened == ["old"]


@pytest.mark.parametrize("given", [credentials("static"), None])
def test_credentials_without_an_expiry_are_never_needed(given: Credentials | None) -> None:
    world = World(now_s=0.0)
    renewal = world.renewal(given)
    world.now_s = 1e9
    assert not renewal.is_needed


# ------------------------------------------------------------------ refused


def test_a_refused_request_waits_for_fresh_credentials() -> None:
    world = World(good={"new"})
    store = world.store(credentials("old"))

    def hand_over() -> None:
        assert store.needs_credentials
        assert store.is_throttling, "a waiting request must not be taken for lost"
        if world.now_s > 60:
            store.renew_credentials(credentials("new"))

    world.meanwhile = hand_over
    assert store.create_upload("k") == "by new"
    assert (store.needs_credentials, store.is_throttling) == (False, False)
    store.close()
    assert world.closed == 2


def test_a_late_success_does_not_hide_a_refusal() -> None:
    world = World(good={"old"})
    store = world.store(credentials("old"))
    seen: list[bool] = []

    def answer_late() -> None:
        store._renewal.succeeded()
        seen.append(store.needs_credentials)
        store.renew_credentials(credentials("new"))

    world.good = {"new"}
    world.meanwhile = answer_late
    assert store.create_upload("k") == "by new"
    assert seen == [True]
    assert not store.needs_credentials


def test_the_same_credentials_are_tried_again_when_they_are_sent_again() -> None:
    """A server with a wrong clock refuses good credentials as expired."""
    world = World()
    store = world.store(credentials("old"))

    def hand_over() -> None:
        if world.now_s > 60:
            world.good.add("old")
            store.renew_credentials(credentials("old"))

    world.meanwhile = hand_over
    assert store.create_upload("k") == "by old"


def test_the_identity_of_the_platform_is_read_again() -> None:
    world = World(good={None})
    store = world.store(None)
    assert store.create_upload("k") == "by None"
    world.good.clear()

    def mend() -> None:
        if world.now_s > 60:
            world.good.add(None)

    world.meanwhile = mend
    assert store.create_upload("k") == "by None"
    # The platform is asked less often than the credentials are polled.
    assert 10 <= len(world.opened) <= 15


@pytest.mark.parametrize("given", [credentials("old"), None])
def test_the_wait_for_credentials_has_a_timeout(given: Credentials | None) -> None:
    world = World()
    store = world.store(given)
    with pytest.raises(CredentialsExpired) as caught:
        store.create_upload("k")
    assert not caught.value.is_permanent
    assert world.now_s == pytest.approx(TIMEOUT_S)
    # A later call does not wait again.
    with pytest.raises(CredentialsExpired):
        store.create_upload("k")
    assert world.now_s == pytest.approx(TIMEOUT_S)


def test_the_deadline_of_a_call_limits_the_wait() -> None:
    world = World()
    store = world.store(credentials("old"))
    with store.within(20.0), pytest.raises(CredentialsExpired):
        store.create_upload("k")
    assert world.now_s == pytest.approx(20.0)


def test_without_an_orchestrator_no_request_waits() -> None:
    world = World()
    store = world.store(credentials("old"), waits=False)
    with pytest.raises(CredentialsExpired):
        store.create_upload("k")
    assert world.now_s == 0.0


def test_a_cancel_ends_the_wait() -> None:
    world = World()
    store = world.store(credentials("old"))
    world.meanwhile = store.cancel
    with pytest.raises(Cancelled):
        store.create_upload("k")
    assert world.now_s < 1.0
