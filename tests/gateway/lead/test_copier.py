"""Objects whose source changes while they are copied."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace

import pytest
from tests.gateway.lead.copy_lab import PART, CopyLab

from skyplane_gateway.common.errors import (
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    SkyplaneError,
    StoreUnavailable,
)
from skyplane_gateway.common.objects import IF_ABSENT, Precondition
from skyplane_gateway.selection.difference import MARGIN_S
from skyplane_gateway.source.chunk_orders import RangeOrder


@pytest.fixture
def lab(inline: Executor) -> CopyLab:
    return CopyLab(inline)


async def copy(lab: CopyLab, key: str, parts: int) -> None:
    row = lab.row(key, parts=parts)
    await (lab.copier.copy_in_parts(row) if parts > 1 else lab.copier.copy_whole([row]))


async def test_only_the_changed_objects_of_a_batch_are_copied_again(lab: CopyLab) -> None:
    lab.store.now = {"one": ("e2", 1)}
    lab.delivery.fate = lambda order: PreconditionFailed("changed") if order.etag == "e" else None
    same = lab.row("same", parts=1)
    same = replace(same, source=replace(same.source, etag="e0"))
    await lab.copier.copy_whole([lab.row("one", parts=1), same])
    assert lab.delivery.etags == ["e", "e0", "e2"]
    assert lab.report.counters.copied == 2


async def test_an_object_that_outgrows_a_chunk_is_copied_in_parts(lab: CopyLab) -> None:
    lab.store.now = {"k": ("e2", 3)}
    lab.delivery.fate = lambda order: PreconditionFailed("changed") if order.etag == "e" else None
    await copy(lab, "k", 1)
    assert lab.verbs == ["create", "complete"]
    assert lab.report.counters.copied_bytes == 3 * len(PART)


@pytest.mark.parametrize("parts", [1, 3])
async def test_an_object_that_changes_twice_has_failed(lab: CopyLab, parts: int) -> None:
    lab.store.now = {"k": ("e2", parts)}
    lab.delivery.fate = lambda _: PreconditionFailed("changed")
    await copy(lab, "k", parts)
    (failure,) = lab.report.failures
    assert failure["code"] == "precondition-failed"
    assert "changed twice" in failure["reason"]
    assert lab.multipart.uploads.open == set()


@pytest.mark.parametrize("parts", [1, 3])
async def test_an_object_that_is_deleted_fails_alone(lab: CopyLab, parts: int) -> None:
    lab.store.now = {"k": NotFound("there is no object 'k'")}
    lab.delivery.fate = lambda wanted: (
        PreconditionFailed("changed") if wanted.source_key == "k" else None
    )
    await copy(lab, "k", parts)
    await copy(lab, "other", 1)
    assert lab.report.failures[0]["code"] == "not-found"
    assert lab.report.counters.copied == 1


async def test_a_failed_precondition_at_the_destination_is_no_change_of_the_source(
    lab: CopyLab,
) -> None:
    lab.delivery.says_source = False
    lab.delivery.fate = lambda _: PreconditionFailed("it is there by now")
    await copy(lab, "k", 1)
    assert lab.store.heads == 0
    assert "it is there by now" in lab.report.failures[0]["reason"]


async def test_the_version_of_the_source_is_asked_for_with_retries(lab: CopyLab) -> None:
    heads = lab.store.head

    def head(key: str) -> object:
        info = heads(key)
        if lab.store.heads < 3:
            raise StoreUnavailable("503")
        return info

    lab.store.head = head
    await copy(lab, "k", 3)
    assert lab.report.counters.copied == 1


async def test_what_an_earlier_lead_may_have_written_is_replaced_only_if_it_differs(
    lab: CopyLab,
) -> None:
    """Sinks find equal objects without a write, and refuse to write over other ones."""
    fence = Precondition(if_match="there")
    rows = [
        replace(lab.row(key, parts=1), precondition=fence, may_be_own_copy=key != "new")
        for key in ("equal", "other", "new")
    ]
    sent: list[tuple[str, Precondition]] = []

    def fate(order: RangeOrder) -> SkyplaneError | None:
        sent.append((order.source_key, order.precondition))
        is_refused = order.source_key == "other" and order.precondition == IF_ABSENT
        return PreconditionFailed("there is another object") if is_refused else None

    lab.delivery.fate = fate
    lab.delivery.says_source = False
    await lab.copier.copy_whole(rows)
    looked_for = [("equal", IF_ABSENT), ("other", IF_ABSENT)]
    assert sent == [*looked_for, ("new", fence), ("other", fence)]
    assert lab.delivery.was_sent == [True, False]
    assert (lab.report.counters.copied, lab.report.counters.failed) == (3, 0)


def overwritten_meanwhile(lab: CopyLab, parts: int) -> None:
    """Version `e` is read; then `e2` of the same size is written, long before our commit."""

    def fate(wanted: RangeOrder) -> None:
        lab.store.now = {"k": ("e2", parts)}

    lab.delivery.fate = fate


@pytest.mark.parametrize("parts", [1, 3])
async def test_a_source_that_changed_during_a_slow_copy_is_copied_again(
    lab: CopyLab, parts: int
) -> None:
    overwritten_meanwhile(lab, parts)
    lab.delivery.takes_s = MARGIN_S
    await copy(lab, "k", parts)
    assert lab.delivery.etags == ["e"] * parts + ["e2"] * parts
    assert (lab.report.counters.copied, lab.report.counters.failed) == (1, 0)
    if parts == 1:
        # It replaces what was just written, and nothing else.
        assert [row.precondition for row in lab.delivery.ranges] == [
            IF_ABSENT,
            Precondition(if_match="e"),
        ]
        assert lab.delivery.ranges[1].mark == ("skyplanesource", "memory:e2")
    else:
        assert lab.verbs == ["create", "abort", "create", "complete"], "asked before the commit"
        made = [asked["attributes"] for asked in lab.sink.asked if "attributes" in asked]
        assert made == [None, None, None], "this source has no attributes"


@pytest.mark.parametrize("parts", [1, 3])
async def test_a_source_is_not_asked_again_after_a_quick_copy(lab: CopyLab, parts: int) -> None:
    overwritten_meanwhile(lab, parts)
    await copy(lab, "k", parts)
    assert lab.delivery.etags == ["e"] * parts
    assert lab.store.heads == (0 if parts == 1 else 1)


async def test_a_source_that_cannot_be_asked_again_is_copied_again(lab: CopyLab) -> None:
    """What was written cannot be shown to be the source's version."""
    lab.store.now = {"k": PermissionDenied("no")}
    lab.delivery.takes_s = MARGIN_S
    await copy(lab, "k", 1)
    assert lab.report.failures[0]["code"] == "permission-denied"


async def test_a_source_that_is_deleted_during_a_slow_copy_has_been_copied(lab: CopyLab) -> None:
    lab.store.now = {"k": NotFound("gone")}
    lab.delivery.takes_s = MARGIN_S
    await copy(lab, "k", 1)
    assert (lab.report.counters.copied, lab.report.counters.failed) == (1, 0)
