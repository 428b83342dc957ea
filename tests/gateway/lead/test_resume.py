"""What a new lead does with objects that an earlier epoch left behind."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.memory_store import create_bucket

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import ChecksumMismatch, PermissionDenied
from skyplane_gateway.common.objects import (
    IF_ABSENT,
    ObjectAttributes,
    ObjectInfo,
    Precondition,
    StoreSpec,
)
from skyplane_gateway.journal.document import DoneRow, Journal, LostRow, UploadRow
from skyplane_gateway.journal.earlier_epochs import EarlierEpochs
from skyplane_gateway.journal.state import JournalState
from skyplane_gateway.lead.resume import Resumer
from skyplane_gateway.lead.resume_rules import EarlierJournal
from skyplane_gateway.selection.selector import Selection
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore

KEY = "cd" * 16
RULE = "the rule"
FOLDER = "out/"
PART = 4


def bucket() -> ObjectStore:
    spec = StoreSpec("memory", uuid.uuid4().hex)
    create_bucket(spec.bucket)
    return open_store(spec)


OLD = ObjectAttributes(content_type="binary/octet-stream")
NEW = ObjectAttributes(content_type="text/csv", metadata=(("owner", "finance"),))


class Mended:
    """A source object that got another content type after its copy. The lead that copied it
    again died before the commit."""

    def __init__(self, action: str) -> None:
        self.stuck = False
        self.source, self.there = bucket(), bucket()
        self.body = b"b" * (2 * PART)
        self.source.put("k", self.body, attributes=NEW)
        self.there.put("k", self.body, attributes=OLD)
        info = self.source.head("k")
        upload_id = self.there.create_upload("k", NEW)
        row = UploadRow("k", upload_id, "k", info.etag, len(self.body), PART, crc32c(self.body))
        journal = Journal(KEY, 1, RULE, PART, writer="w", uploads=(row,))
        self.resumer = Resumer(
            EarlierJournal(journal),
            self.call,
            cast("Any", self),
            {"folder": "", "transfer_key": KEY, "epoch": 2},
        )
        left = self.there.head("k")
        fence = Precondition(if_match=left.etag)
        self.row = Selection(info, "k", left, action, "", fence)  # type: ignore[arg-type]

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self.stuck and verb == "abort":
            raise PermissionDenied("403")
        return Destination(self.there, "stored").run(verb, arguments)

    async def head(self, key: str) -> ObjectInfo:
        return self.source.head(key)

    async def crc32c(self, info: ObjectInfo) -> int:
        return crc32c(self.body)


def test_an_object_with_the_same_bytes_and_older_attributes_is_copied_again() -> None:
    """Its content type has changed at the source since."""
    mended = Mended("copy")
    resumed = asyncio.run(mended.resumer.resume(mended.row))
    assert not resumed.is_finished
    assert resumed.upload is not None
    assert [row.upload_id for row in mended.there.list_uploads("")] == [resumed.upload.upload_id]


@pytest.mark.parametrize("seen", ["committed", "gone", "refuse"])
def test_an_object_with_the_same_bytes_is_finished_unless_its_attributes_are_older(
    seen: str,
) -> None:
    mended = Mended("refuse" if seen == "refuse" else "copy")
    if seen == "committed":
        mended.there.put("k", mended.body, attributes=NEW)
    elif seen == "gone":
        mended.source.delete("k")
    resumed = asyncio.run(mended.resumer.resume(mended.row))
    assert resumed.is_finished
    assert list(mended.there.list_uploads("")) == []


@pytest.mark.parametrize("is_done", [False, True], ids=["compared", "recorded"])
def test_a_finished_object_whose_upload_cannot_be_aborted_is_finished(is_done: bool) -> None:
    mended = Mended("copy")
    mended.there.put("k", mended.body, attributes=NEW)
    there = mended.there.head("k")
    mended.row = replace(mended.row, destination=there)
    (open_one,) = mended.there.list_uploads("")
    if is_done:
        info = mended.row.source
        upload = UploadRow("k", open_one.upload_id, "k", info.etag, len(mended.body), PART)
        done = DoneRow("k", there.etag, info.etag, len(mended.body), crc32c(mended.body))
        journal = Journal(KEY, 1, RULE, PART, writer="w", uploads=(upload,), done=(done,))
        mended.resumer = replace(mended.resumer, earlier=EarlierJournal(journal))
    mended.stuck = True
    resumed = asyncio.run(mended.resumer.resume(mended.row))
    assert resumed.is_finished
    assert resumed.gone is None
    assert resumed.upload is not None
    assert resumed.upload.upload_id == open_one.upload_id


@pytest.mark.parametrize("seen", ["equal", "gone"])
def test_an_object_that_the_rule_keeps_is_compared_where_it_may_be_an_unverified_write(
    seen: str,
) -> None:
    mended = Mended("skip")
    if seen == "gone":
        mended.there.delete("k")
    resumed = asyncio.run(mended.resumer.resume(mended.row))
    assert (resumed.is_finished, resumed.row.action) == (
        (True, "skip") if seen == "equal" else (False, "copy")
    )
    assert seen == "equal" or resumed.row.precondition == IF_ABSENT
    assert list(mended.there.list_uploads("")) == []


def test_a_possible_unverified_write_with_other_bytes_stays_and_is_reported() -> None:
    mended = Mended("skip")
    spoilt = mended.there.put("k", b"a" + mended.body[1:])
    with pytest.raises(ChecksumMismatch, match="earlier try") as caught:
        asyncio.run(mended.resumer.resume(mended.row))
    assert caught.value.is_permanent
    assert mended.there.head("k").etag == spoilt.etag
    assert list(mended.there.list_uploads("")) == []


def test_uploads_of_requests_that_an_earlier_lead_lost_are_aborted() -> None:
    """The store had run a request whose answer was lost; another upload is continued."""
    mended = Mended("copy")
    (ours,) = mended.there.list_uploads("")
    mended.there.create_upload("k")
    lost = LostRow("k", ours.initiated, ours.initiated + 1.0)
    state = JournalState(Journal(KEY, 2, RULE, PART, writer="w", lost=(lost,)))
    left = EarlierEpochs(None, (), (lost,))
    asyncio.run(mended.resumer.abort_abandoned(left, state))
    assert list(mended.there.list_uploads("")) == [ours]
    assert state.journal(1).lost == ()
