"""Control sessions with the gateways of a fleet, called in parallel."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.transfer.samples import fleet_of

from skyplane_gateway.common.dialing import Dial, directly
from skyplane_orchestration.errors import NotFound
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.transfer.fleet_sessions import FleetSessions


class _Authority:
    """Gives no context: nothing is called over the network here."""

    made = 0

    def client_context(self) -> Any:
        self.made += 1
        return object()

    def expected_uri(self, node: str) -> str:
        return node


def _dialed(fleet_key: str, node: str) -> Dial:
    return directly


def test_a_session_is_opened_once_for_each_gateway() -> None:
    authority = _Authority()
    fleet = fleet_of("ab")
    with FleetSessions(fleet, authority, _dialed) as sessions:  # type: ignore[arg-type]
        one = sessions.of(fleet.gateways[0])
        assert sessions.of(fleet.gateways[0]) is one
        assert sessions.of(fleet.gateways[1]) is not one
    assert authority.made == 1


def test_gateways_are_called_in_parallel() -> None:
    fleet = fleet_of("abcd")
    together = threading.Barrier(4, timeout=30)

    def call(handle: GatewayHandle, _: Any) -> str:
        together.wait()
        return handle.node.upper()

    with FleetSessions(fleet, _Authority(), _dialed) as sessions:  # type: ignore[arg-type]
        assert sessions.each(fleet.gateways, call) == {"a": "A", "b": "B", "c": "C", "d": "D"}
        assert sessions.each((), call) == {}


def test_one_error_among_answers() -> None:
    fleet = fleet_of("abc")

    def call(handle: GatewayHandle, _: Any) -> str:
        if handle.node == "b":
            raise NotFound("gone")
        return handle.node

    with FleetSessions(fleet, _Authority(), _dialed) as sessions:  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            sessions.each(fleet.gateways, call)
        answers, errors = sessions.each_that_answers(fleet.gateways, call)
        assert answers == {"a": "a", "c": "c"}
        assert [type(error) for error in errors.values()] == [NotFound]
        assert list(errors) == ["b"]

    def defect(handle: GatewayHandle, _: Any) -> str:
        raise RuntimeError("a defect is no answer")

    with (
        FleetSessions(fleet, _Authority(), _dialed) as sessions,  # type: ignore[arg-type]
        pytest.raises(RuntimeError),
    ):
        sessions.each_that_answers(fleet.gateways, defect)
