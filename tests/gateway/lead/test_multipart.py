"""Large objects: their uploads begin, complete, and are aborted; the journal names each."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import replace

import pytest
from tests.gateway.lead.copy_lab import GONE, PART, CopyLab

from skyplane_gateway.common.checksum import crc32c as checksum
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    GatewayLost,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    SkyplaneError,
    StoreUnavailable,
)
from skyplane_gateway.common.objects import MIB, ObjectAttributes, PartInfo
from skyplane_gateway.journal.document import UploadRow, attributes_digest
from skyplane_gateway.lead import multipart
from skyplane_gateway.lead.backoff import POLICY
from skyplane_gateway.lead.resume import Resumed
from skyplane_gateway.source.chunk_orders import RangeOrder

NO_UPLOAD = NotFound("no such upload")


@pytest.fixture
def lab(inline: Executor) -> CopyLab:
    return CopyLab(inline)


async def test_the_checksum_of_the_whole_combines_those_of_its_parts(lab: CopyLab) -> None:
    await lab.copier.copy_in_parts(lab.row("k", parts=3))
    assert lab.verbs == ["create", "complete"]
    assert lab.report.page(0)["rows"][0]["crc32c"] == checksum(PART * 3)
    assert lab.multipart.uploads.open == set()


async def test_parts_are_larger_where_few_are_joined_at_once(lab: CopyLab) -> None:
    """As large as objects that are sent whole, for which the sinks have the memory."""
    multi, context = lab.multipart, lab.multipart._context
    joining = replace(context.capabilities, joined_parts=32)
    multi._context = replace(context, capabilities=joining, whole_bytes=64 * MIB)
    row = lab.row("k")
    for size_bytes, part_bytes in ((1024 * MIB, 32 * MIB), (100_000 * MIB, 64 * MIB)):
        source = replace(row.source, size_bytes=size_bytes)
        begun = multi._begun(replace(row, source=source), source, is_server_side=False)
        assert begun.part_bytes == part_bytes


@pytest.mark.parametrize(("known", "most"), [(5, 3), (7, 6), (2, 3), (100, 12)])
async def test_the_parts_in_memory_are_limited(
    inline: Executor, monkeypatch: pytest.MonkeyPatch, known: int, most: int
) -> None:
    monkeypatch.setattr(multipart, "_PARTS_KNOWN", known)
    lab = CopyLab(inline)
    rows = [lab.row(f"k{number}", parts=3) for number in range(4)]
    await asyncio.gather(*map(lab.copier.copy_in_parts, rows))
    assert lab.delivery.most_in_flight == most
    assert lab.report.counters.copied == 4


async def test_parts_that_wait_are_no_tasks(
    inline: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multipart, "_PARTS_IN_FLIGHT", 16)
    lab = CopyLab(inline)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(asyncio.all_tasks()))
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(lab.copier.copy_in_parts(lab.row(f"k{n}", parts=300)) for n in range(4)))
    watching.cancel()
    assert lab.report.counters.copied == 4
    assert lab.delivery.most_in_flight == 16
    assert most < 50


async def test_a_part_that_fails_aborts_the_upload_and_fails_the_object(lab: CopyLab) -> None:
    lab.delivery.fate = lambda wanted: (
        PermissionDenied("no") if wanted.offset == len(PART) else None
    )
    await lab.copier.copy_in_parts(lab.row("k"))
    assert lab.report.failures[0]["code"] == "permission-denied"
    assert lab.verbs == ["create", "abort"]
    assert lab.multipart.uploads.open == set()


async def test_a_completion_that_fails_aborts_the_upload(lab: CopyLab) -> None:
    lab.sink.errors["complete"] = [StoreUnavailable("503")] * POLICY.attempts
    await lab.copier.copy_in_parts(lab.row("k"))
    assert lab.report.counters.failed == 1
    assert lab.verbs[-1] == "abort"


async def test_what_is_left_of_an_upload_is_no_failure_and_stays_named(lab: CopyLab) -> None:
    """For the end of the transfer, which tries again, and then for a sweep."""
    lab.sink.leftover = "its parts cannot be deleted"
    await lab.copier.copy_in_parts(lab.row("k"))
    assert (lab.report.counters.copied, lab.report.counters.failed) == (1, 0)
    assert lab.verbs == ["create", "complete"]
    (upload,) = lab.multipart.uploads.open
    named = [row.upload_id for row in lab.journal.state.journal(1).uploads]
    assert named == [upload.upload_id]
    await lab.multipart.uploads.abort_all()
    assert lab.multipart.uploads.open == set()
    assert lab.journal.state.journal(1).uploads == ()


async def test_a_lost_sink_may_still_run_the_completion(lab: CopyLab) -> None:
    """Its upload is gone, and its object not there yet."""
    lab.sink.errors["complete"] = [GONE, NO_UPLOAD, NO_UPLOAD]
    await lab.copier.copy_in_parts(lab.row("k"))
    assert (lab.report.counters.copied, lab.multipart.uploads.open) == (1, set())


async def test_an_upload_that_vanishes_at_a_part_begins_again(lab: CopyLab) -> None:
    """For instance by a lifecycle rule of the bucket."""
    gone = [NO_UPLOAD]
    lab.delivery.fate = lambda wanted: gone.pop() if gone and wanted.offset else None
    lab.delivery.says_source = False
    await lab.copier.copy_in_parts(lab.row("k"))
    assert lab.verbs == ["create", "abort", "create", "complete"]
    assert lab.report.counters.copied == 1


@pytest.mark.parametrize(("times", "copied"), [(1, 1), (2, 0)])
async def test_an_upload_that_vanishes_at_the_end_begins_again_once(
    lab: CopyLab, times: int, copied: int
) -> None:
    lab.sink.errors["complete"] = [NO_UPLOAD] * (times * POLICY.attempts)
    await lab.copier.copy_in_parts(lab.row("k"))
    assert lab.verbs.count("create") == 2
    assert lab.report.counters.copied == copied
    assert [row["code"] for row in lab.report.failures] == ["not-found"] * (1 - copied)
    assert lab.multipart.uploads.open == set()


@pytest.mark.parametrize(("times", "copied"), [(1, 1), (2, 0)])
async def test_a_whole_with_another_checksum_is_sent_again_once(
    lab: CopyLab, times: int, copied: int
) -> None:
    bad = ChecksumMismatch("other bytes", is_permanent=True)
    lab.sink.errors["complete"] = [bad] * times
    await lab.copier.copy_in_parts(lab.row("k"))
    again = ["create", "complete", "abort"]
    assert lab.verbs == ([*again, "create", "complete"] if copied else 2 * again)
    assert [row["code"] for row in lab.report.failures] == ["checksum-mismatch"] * (1 - copied)


async def test_a_source_object_that_is_gone_fails(lab: CopyLab) -> None:
    lab.delivery.fate = lambda _: NotFound("no such object")
    await lab.copier.copy_in_parts(lab.row("k"))
    assert lab.report.failures[0]["code"] == "not-found"
    assert lab.verbs == ["create", "abort"]


async def test_without_any_sink_the_transfer_ends_and_the_upload_stays_listed(
    lab: CopyLab,
) -> None:
    lab.sink.errors["complete"] = [GONE] * 1000
    with pytest.raises(GatewayLost):
        await lab.copier.copy_in_parts(lab.row("k"))
    assert len(lab.multipart.uploads.open) == 1


# -- requests without an answer


async def test_uploads_of_lost_requests_are_aborted_at_once_and_at_the_end(lab: CopyLab) -> None:
    """The sink was killed while it began one; the store may run the request later."""
    lab.sink.errors["create"] = [GONE]
    await lab.copier.copy_in_parts(lab.row("k"))
    assert lab.verbs == ["create", "create", "abort_intended", "complete"]
    assert lab.sink.asked[2]["spared"] == "id-to/k"
    (lost,) = lab.journal.state.journal(1).lost
    assert lost.key == "to/k"
    await asyncio.sleep(100.0)
    del lab.verbs[:]
    await lab.multipart.uploads.abort_all()
    assert lab.verbs == ["abort_intended"]
    asked = lab.sink.asked[-1]
    assert (asked["key"], asked["spared"]) == ("to/k", None)
    assert asked["asked_s_ago"] >= 100.0
    assert lab.journal.state.journal(2).lost == ()
    await lab.multipart.uploads.abort_all()
    assert lab.verbs == ["abort_intended"]


async def test_a_lost_request_stays_in_the_journal_until_a_sink_has_looked(lab: CopyLab) -> None:
    lab.sink.errors["create"] = [GONE]
    lab.sink.errors["abort_intended"] = [StoreUnavailable("503")] * 2
    await lab.copier.copy_in_parts(lab.row("k"))
    await lab.multipart.uploads.abort_all_unanswered()
    assert [row.key for row in lab.journal.state.journal(1).lost] == ["to/k"]
    await lab.multipart.uploads.abort_all_unanswered()
    assert lab.journal.state.journal(2).lost == ()


# -- the source changes; uploads of earlier epochs


async def test_an_upload_begins_again_with_the_new_version_of_its_source(lab: CopyLab) -> None:
    lab.store.now = {"k": ("e", 3)}
    heads = lab.store.head

    def head(key: str) -> object:
        info = heads(key)
        lab.store.now["k"] = ("e2", 4)  # It changes after the first look.
        return info

    lab.store.head = head
    lab.delivery.fate = lambda order: PreconditionFailed("changed") if order.etag == "e" else None
    await lab.copier.copy_in_parts(lab.row("k"))
    assert lab.verbs == ["create", "abort", "create", "complete"]
    assert lab.delivery.etags[-4:] == ["e2"] * 4
    (row,) = lab.report.page(0)["rows"]
    assert (row["state"], row["bytes"]) == ("copied", 4 * len(PART))
    assert lab.multipart.uploads.open == set()


async def test_an_upload_that_cannot_be_aborted_stays_named_while_its_object_begins_again(
    lab: CopyLab,
) -> None:
    lab.sink.upload_ids = iter(["first", "second"])
    lab.sink.errors["abort"] = [StoreUnavailable("503")]
    listed = lab.row("k")
    etags = iter(["e", "e2", "e2"])
    lab.store.head = lambda key: replace(listed.source, etag=next(etags))

    def fate(order: RangeOrder) -> SkyplaneError:
        return PreconditionFailed("changed") if order.etag == "e" else GatewayLost("by no path")

    lab.delivery.fate = fate
    await lab.copier.copy_in_parts(listed)
    named = {row.upload_id for row in lab.journal.state.journal(1).uploads}
    assert named == {"first"}, "the second was aborted when the object failed"
    await lab.multipart.uploads.abort_all()
    assert lab.journal.state.journal(2).uploads == ()


@pytest.mark.parametrize("begun_as", ["text/csv", "binary/octet-stream", None])
async def test_an_upload_is_continued_only_with_the_attributes_of_today(
    lab: CopyLab, begun_as: str | None
) -> None:
    """Attributes can change without a new ETag."""
    row = lab.row("k")
    today = ObjectAttributes(content_type="text/csv")
    lab.store.head = lambda key: replace(row.source, attributes=today)
    digest = attributes_digest(ObjectAttributes(content_type=begun_as)) if begun_as else None
    size = row.source.size_bytes
    upload = UploadRow("to/k", "old", "k", "e", size, len(PART), attributes=digest)
    lab.journal.state.listed("to/k")
    lab.journal.state.upload_intended(upload)
    lab.journal.state.upload_created("to/k", "old")
    lab.multipart.resume_later(Resumed(row, upload=upload))
    await lab.copier.copy_in_parts(row)
    is_continued = begun_as != "binary/octet-stream"
    assert lab.verbs == (["complete"] if is_continued else ["abort", "create", "complete"])
    told = {**today.to_dict(), "metadata": {"skyplanesource": "memory:e"}}
    assert lab.sink.asked[-1]["attributes"] == told
    assert lab.report.counters.copied == 1


# -- objects that the store copies itself


SOURCE_CRC = checksum(PART * 3)


@pytest.fixture
def server_side(inline: Executor) -> CopyLab:
    """The source's store gives a checksum, and the destination's answers copies with a part."""
    lab = CopyLab(inline, server_side="ranges")
    lab.store.crc32c = SOURCE_CRC
    return lab


async def test_the_store_copies_parts_of_the_pinned_version(server_side: CopyLab) -> None:
    lab = server_side
    await lab.copier.copy_in_parts(lab.row("k", parts=3))
    assert lab.verbs == ["create", *["copy_part"] * 3, "complete"]
    copies = [row for row in lab.sink.asked if "source" in row]
    assert [row["source"]["offset"] for row in copies] == [0, len(PART), 2 * len(PART)]
    assert {row["source"]["etag"] for row in copies} == {"e"}
    assert lab.sink.asked[0]["server_side"] is True
    # The commit compares it.
    assert lab.sink.asked[-1]["crc32c"] == SOURCE_CRC
    counters = lab.report.counters
    assert (counters.copied, counters.server_side) == (1, 1)
    assert counters.server_side_bytes == 3 * len(PART)
    assert lab.delivery.etags == []


async def test_a_store_that_copies_only_objects_copies_one_part(inline: Executor) -> None:
    lab = CopyLab(inline, server_side="objects")
    lab.store.crc32c = SOURCE_CRC
    await lab.copier.copy_in_parts(lab.row("k", parts=3))
    assert lab.verbs == ["create", "copy_part", "complete"]
    (part,) = lab.sink.asked[-1]["parts"]
    assert (part["number"], part["size_bytes"]) == (1, 3 * len(PART))


@pytest.mark.parametrize("parts", [3, 1])
async def test_without_a_checksum_of_the_source_the_gateways_send_the_object(
    server_side: CopyLab, parts: int
) -> None:
    lab = server_side
    lab.store.crc32c = None
    await lab.copier.copy_in_parts(lab.row("k", parts=parts))
    # What fits is sent whole.
    assert lab.verbs == (["create", "complete"] if parts == 3 else [])
    assert lab.delivery.etags == ["e"] * parts
    assert (lab.report.counters.copied, lab.report.counters.server_side) == (1, 0)


@pytest.mark.parametrize("verb", ["create", "copy_part", "complete"])
async def test_a_store_that_refuses_is_not_asked_for_the_next_object(
    server_side: CopyLab, verb: str
) -> None:
    lab = server_side
    lab.sink.errors[verb] = [PermissionDenied("may not read the source")] * 3
    await lab.copier.copy_in_parts(lab.row("k"))
    if verb != "copy_part":
        # The gateways are refused as well.
        lab.sink.errors[verb] = []
    del lab.verbs[:]
    await lab.copier.copy_in_parts(lab.row("l"))
    assert lab.verbs == ["create", "complete"]
    assert lab.report.counters.server_side == 0
    assert lab.multipart.uploads.open == set()
    if verb == "copy_part":
        assert lab.report.counters.copied == 2


async def test_a_copy_with_another_checksum_goes_through_the_gateways(
    server_side: CopyLab,
) -> None:
    lab = server_side
    lab.sink.errors["complete"] = [ChecksumMismatch("other bytes", is_permanent=True)]
    await lab.copier.copy_in_parts(lab.row("k"))
    assert lab.verbs[-3:] == ["abort", "create", "complete"]
    assert (lab.report.counters.copied, lab.report.counters.server_side) == (1, 0)


@pytest.mark.parametrize("gone", [PreconditionFailed("changed"), NO_UPLOAD])
async def test_a_source_that_changes_is_copied_by_the_store_from_its_beginning(
    server_side: CopyLab, gone: SkyplaneError
) -> None:
    lab = server_side
    lab.sink.errors["copy_part"] = [gone]
    await lab.copier.copy_in_parts(lab.row("k"))
    assert lab.verbs[-5:] == ["create", *["copy_part"] * 3, "complete"]
    assert (lab.report.counters.copied, lab.report.counters.server_side) == (1, 1)
    assert lab.multipart.uploads.open == set()


@pytest.mark.parametrize("was_server_side", [True, False])
async def test_copied_and_sent_parts_do_not_mix_in_one_upload(
    server_side: CopyLab, was_server_side: bool
) -> None:
    """The one before may have been sent, because the store gave no checksum then."""
    lab = server_side
    row = lab.row("k")
    size = row.source.size_bytes
    upload = UploadRow("to/k", "old", "k", "e", size, len(PART), is_server_side=was_server_side)
    lab.journal.state.listed("to/k")
    lab.journal.state.upload_intended(upload)
    lab.journal.state.upload_created("to/k", "old")
    stored = {1: PartInfo(1, "e", len(PART))}
    lab.multipart.resume_later(Resumed(row, upload=upload, parts=stored))
    await lab.copier.copy_in_parts(row)
    copies = 2 if was_server_side else 3
    begin = [] if was_server_side else ["abort", "create"]
    assert lab.verbs == [*begin, *["copy_part"] * copies, "complete"]
    assert [part["number"] for part in lab.sink.asked[-1]["parts"]] == [1, 2, 3]
