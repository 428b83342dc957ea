from __future__ import annotations

import json

import pytest

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.config import Route
from skyplane_gateway.journal.document import Journal, decode_journal, encode_journal
from skyplane_gateway.journal.totals import MAX_HOPS, SentRow, Totals, sent_over

A, R, B = "aws:us-east-1", "azure:eastus", "gcp:europe-west4"


def test_payload_is_counted_on_every_hop_between_regions() -> None:
    routes = (
        Route(0, (f"{A}/0", f"{B}/0"), (1,), 1.0),
        Route(1, (f"{A}/1", f"{B}/0"), (1,), 1.0),
        Route(2, (f"{A}/0", f"{R}/0", f"{B}/1"), (1, 1), 1.0),
        Route(3, (f"{A}/2",), (), 1.0),
    )
    sent = sent_over(routes, {0: 5, 1: 2, 2: 3, 3: 100})
    assert sent == (SentRow(A, B, 7), SentRow(A, R, 3), SentRow(R, B, 3))
    assert sent_over(routes, {}) == ()


def test_epochs_add_up() -> None:
    first = Totals(2.0, (SentRow(A, B, 7),), 2, {"tags": 2}, unchecked=2)
    second = Totals(
        0.5, (SentRow(A, R, 1), SentRow(A, B, 3)), 1, {"tags": 1, "expires": 1}, unchecked=3
    )
    assert first.plus(second) == Totals(
        2.5, (SentRow(A, B, 10), SentRow(A, R, 1)), 3, {"expires": 1, "tags": 3}, unchecked=5
    )
    assert Totals().plus(first) == first


def test_totals_are_bounded() -> None:
    many = Totals(sent=tuple(SentRow(A, f"x:{number}", number + 1) for number in range(1000)))
    assert Totals().plus(many).sent == tuple(
        SentRow(A, f"x:{number}", number + 1) for number in range(999, 999 - MAX_HOPS, -1)
    )


def test_totals_are_part_of_the_journal() -> None:
    totals = Totals(2.0, (SentRow(A, B, 7),), 2, {"tags": 2})
    journal = Journal("ab", 1, "rule", 1, totals=totals)
    assert decode_journal(encode_journal(journal)) == journal
    document = journal.to_dict()
    del document["totals"]
    assert Journal.from_dict(json.loads(json.dumps(document))).totals == Totals()
    with pytest.raises(ConfigurationInvalid, match="totals"):
        Totals.from_dict({"seconds": "long"})
