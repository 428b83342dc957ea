"""What a lead does with the journals of earlier epochs."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import (
    buckets,
    content,
    copy_spec,
    fill,
    journals,
    route,
    uploads,
)
from tests.memory_store import _buckets

from skyplane_gateway.config import MIB
from skyplane_gateway.journal.document import (
    FailedRow,
    Journal,
    UploadRow,
    encode_journal,
    journal_key,
    rule_digest,
)
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.journal.totals import SentRow, Totals
from skyplane_gateway.stores import open_store

KEY = "ab" * 16


async def test_a_permanent_failure_leaves_no_upload_of_an_earlier_epoch(fleet_of: Any) -> None:
    """It has no resume handle and its status names no open upload, but one is open."""

    source, destination = buckets()
    spec = copy_spec(source, destination, chunk_bytes=MIB)
    store = open_store(destination)
    row = UploadRow("z", store.create_upload("z"), "z", "v", 3 * MIB, MIB)
    past = Journal(KEY, 1, rule_digest(spec), MIB, writer="w", sequence=1, uploads=(row,))
    JournalFolder(store, "", KEY).write(past, None)
    async with fleet_of() as fleet:
        await fleet.begin(KEY, spec, epoch=2)
        status = await fleet.ended(KEY)
        assert (status["state"], status["error"]["is_permanent"]) == ("failed", True)
        named = [upload["key"] for upload in status["open_uploads"]]
        assert uploads(destination) == named


async def test_an_upload_of_an_object_that_now_fits_one_chunk_stays_named(fleet_of: Any) -> None:
    """A resume with larger chunks; another object fails first, so that there is a resume."""

    source, destination = buckets()
    listed = fill(source, {"a": b"1", "z": bytes(2 * MIB)})
    store = fill(destination, {"a": b"there"})
    spec = copy_spec(source, destination, chunk_bytes=4 * MIB, conflict="fail")
    etag = listed.head("z").etag
    row = UploadRow("z", store.create_upload("z"), "z", etag, 2 * MIB, MIB)
    past = Journal(KEY, 1, rule_digest(spec), MIB, writer="w", sequence=1, uploads=(row,))
    JournalFolder(store, "", KEY).write(past, None)
    async with fleet_of() as fleet:
        await fleet.begin(KEY, spec, epoch=2)
        status = await fleet.ended(KEY)
        assert (status["copied"], status["failed"], status["open_uploads"]) == (1, 1, [])
        newest = journals(destination)[-1]
        assert newest.epoch == 2
        named = {upload.key for upload in newest.uploads}
        assert set(uploads(destination)) <= named


@pytest.mark.parametrize(
    ("conflict", "verify", "state"),
    [
        ("skip", "stored", "failed"),
        ("replace-if-newer", "stored", "failed"),
        ("replace-if-different", "reread", "failed"),
        ("skip", "none", "succeeded"),
        ("replace", "stored", "succeeded"),
        ("fail", "stored", "failed"),
    ],
)
async def test_an_unreadable_journal_fails_rules_that_keep_objects(
    fleet_of: Any, conflict: str, verify: str, state: str
) -> None:
    """It may have said that the object, of the same size, is not to be taken for well."""

    source, destination = buckets({"a": b"right"})
    there = fill(destination, {"a": b"wrong"})
    key = journal_key("", KEY, 1)
    spec = copy_spec(source, destination, conflict=conflict, verify=verify)
    failed = (FailedRow("a", "permission-denied"),)
    past = Journal(KEY, 1, rule_digest(spec), MIB, failed=failed, failed_count=1)
    # One letter is another: still the journal of something.
    there.put(key, encode_journal(past).replace(b'"key":"a"', b'"key":"b"'))
    async with fleet_of() as fleet:

        async def ended(epoch: int) -> Any:
            await fleet.begin(KEY, spec, epoch=epoch, verify=verify)
            return await fleet.ended(KEY)

        status = await ended(2)
        assert status["state"] == state
        if conflict == "fail":
            assert status["error"]["code"] == "objects-failed"
            return
        if state == "succeeded":
            expected = b"right" if conflict == "replace" else b"wrong"
            assert content(destination)["a"] == expected
            return
        error = status["error"]
        assert (error["code"], error["is_permanent"]) == ("journal-unreadable", True)
        assert key in error["message"]
        assert [row.key for row in there.list("")] == [key, "a"]
        # As its message says.
        there.delete("a")
        there.delete(key)
        assert (await ended(3))["state"] == "succeeded"
        assert content(destination) == {"a": b"right"}


async def test_a_new_epoch_knows_the_totals_of_earlier_epochs(fleet_of: Any) -> None:
    source, destination = buckets({f"o{i}": bytes(MIB) for i in range(4)})
    objects = _buckets[source.bucket].objects
    info = replace(objects["o1"].info, not_carried=("tags",))
    objects["o1"] = replace(objects["o1"], info=info)
    there = fill(destination, {"o2": b"a stranger's"})
    spec = copy_spec(source, destination, chunk_bytes=MIB, conflict="fail")
    async with fleet_of(route(0, "a", "r", "b")) as fleet:
        statuses = []
        for epoch in (1, 2, 3):
            await fleet.begin(KEY, spec, epoch=epoch)
            statuses.append(await fleet.ended(KEY))
            if epoch == 2:
                there.delete("o2")
        first, second, third = statuses
        assert [status["copied"] for status in statuses] == [3, 3, 4]
        assert [status["copied_earlier"] for status in statuses] == [0, 3, 3]
        assert first["earlier"] == Totals().to_dict()
        sent = [
            {"src": "a", "dst": "r", "size_bytes": 3 * MIB},
            {"src": "r", "dst": "b", "size_bytes": 3 * MIB},
        ]
        assert second["earlier"]["sent"] == third["earlier"]["sent"] == sent
        assert second["delivered_bytes"] == {"0": 0}
        assert 0 < second["earlier"]["seconds"] < third["earlier"]["seconds"]
        assert second["earlier"]["seconds"] <= first["seconds"]
        for status in statuses:
            assert (status["not_carried"], status["not_carried_by_name"]) == (1, {"tags": 1})


async def test_the_journal_counts_bytes_of_an_unfinished_object(
    fleet_of: Any, wrap_stores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lead that is lost there has sent much, and no object has ended since."""
    held = threading.Event()

    def put_part(original: Any, key: str, upload: str, number: int, *rest: Any, **more: Any) -> Any:
        if number == 4:
            held.wait(60)
        return original(key, upload, number, *rest, **more)

    monkeypatch.setattr("skyplane_gateway.lead.transfer._TOTALS_S", 0.01)
    wrap_stores(put_part=put_part)
    source, destination = buckets({"large": bytes(4 * MIB)})
    async with fleet_of() as fleet:
        await fleet.begin(KEY, copy_spec(source, destination, chunk_bytes=MIB))
        sent = (SentRow("a", "b", 3 * MIB),)
        await fleet.until(lambda: any(row.totals.sent == sent for row in journals(destination)))
        held.set()
        assert (await fleet.ended(KEY))["state"] == "succeeded"
