"""Which connection is closed when too many have no proof."""

from __future__ import annotations

import resource

import pytest

from skyplane_gateway.transport.pending_connections import PendingConnections, within_open_files


def test_the_oldest_connection_is_closed() -> None:
    pending: PendingConnections[str] = PendingConnections(2)
    assert [pending.connected(name) for name in "abcd"] == [None, None, "a", "b"]
    assert len(pending) == 2


def test_silent_and_speaking_connections_do_not_push_each_other_out() -> None:
    pending: PendingConnections[str] = PendingConnections(2)
    pending.connected("peer")
    assert pending.speaks("peer") is None
    assert [pending.connected(name) for name in "abcd"] == [None, None, "a", "b"]
    # Only another speaking connection closes "peer".
    assert pending.speaks("c") is None
    assert pending.speaks("d") == "peer"
    assert pending.connected("late") is None


def test_a_removed_connection_does_not_count() -> None:
    pending: PendingConnections[str] = PendingConnections(1)
    pending.connected("peer")
    pending.speaks("peer")
    pending.remove("peer")
    pending.remove("peer")
    assert pending.speaks("peer") is None
    assert pending.connected("other") is None
    assert len(pending) == 1


@pytest.mark.parametrize(
    ("files", "limit"),
    [(resource.RLIM_INFINITY, 256), (20_000, 256), (1024, 128), (256, 32), (20, 16)],
)
def test_the_limit_depends_on_the_open_files(
    files: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert within_open_files(256) == limit
