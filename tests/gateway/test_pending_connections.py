"""Who goes when too many have proven nothing."""

from __future__ import annotations

import resource

import pytest

from skyplane_gateway.pending_connections import PendingConnections, affordable


def test_the_oldest_makes_room() -> None:
    strangers: PendingConnections[str] = PendingConnections(2)
    assert [strangers.came(who) for who in "abcd"] == [None, None, "a", "b"]
    assert len(strangers) == 2


def test_a_silent_crowd_does_not_push_out_who_speaks_nor_the_other_way_round() -> None:
    strangers: PendingConnections[str] = PendingConnections(2)
    strangers.came("peer")
    assert strangers.spoke("peer") is None
    assert [strangers.came(who) for who in "abcd"] == [None, None, "a", "b"]
    # "peer" was not among those who went; it goes only for others that speak.
    assert strangers.spoke("c") is None
    assert strangers.spoke("d") == "peer"
    assert strangers.came("late") is None


def test_who_has_proven_itself_or_is_gone_counts_no_more() -> None:
    strangers: PendingConnections[str] = PendingConnections(1)
    strangers.came("peer")
    strangers.spoke("peer")
    strangers.left("peer")
    strangers.left("peer")
    assert strangers.spoke("peer") is None
    assert strangers.came("other") is None
    assert len(strangers) == 1


@pytest.mark.parametrize(
    ("files", "limit"),
    [(resource.RLIM_INFINITY, 256), (20_000, 256), (1024, 128), (256, 32), (20, 16)],
)
def test_few_files_mean_few_strangers(
    files: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert affordable(256) == limit
