"""Who goes when too many have proven nothing."""

from __future__ import annotations

import resource

import pytest

from skyplane_gateway.pending_connections import PendingConnections, within_open_files


def test_the_oldest_makes_room() -> None:
    pending: PendingConnections[str] = PendingConnections(2)
    assert [pending.connected(who) for who in "abcd"] == [None, None, "a", "b"]
    assert len(pending) == 2


def test_a_silent_crowd_does_not_push_out_who_speaks_nor_the_other_way_round() -> None:
    pending: PendingConnections[str] = PendingConnections(2)
    pending.connected("peer")
    assert pending.speaks("peer") is None
    assert [pending.connected(who) for who in "abcd"] == [None, None, "a", "b"]
    # "peer" was not among those who went; it goes only for others that speak.
    assert pending.speaks("c") is None
    assert pending.speaks("d") == "peer"
    assert pending.connected("late") is None


def test_who_has_proven_itself_or_is_gone_counts_no_more() -> None:
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
def test_few_files_mean_few_strangers(
    files: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert within_open_files(256) == limit
