from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.journal.document import (
    MAX_JOURNAL_BYTES,
    DoneRow,
    FailedRow,
    Journal,
    UploadRow,
    decode_journal,
    encode_journal,
    epoch_of,
    folder_of_destination,
    journal_key,
    journals_prefix,
    rule_digest,
)

KEY = "0123456789abcdef" * 2

UPLOAD = {
    "key": "k",
    "upload_id": None,
    "source_key": "s",
    "source_etag": "e",
    "size_bytes": 1,
    "part_bytes": 1,
}

texts = st.text(max_size=30)
counts = st.integers(0, 1 << 48)
done_rows = st.builds(DoneRow, texts, texts, texts, counts, counts, st.booleans())
upload_rows = st.builds(
    UploadRow,
    texts,
    st.none() | texts,
    texts,
    texts,
    counts,
    st.integers(1, 1 << 40),
    st.none() | counts,
    attributes=st.none() | texts,
)
journals = st.builds(
    Journal,
    transfer_key=st.just(KEY),
    epoch=st.integers(0, 1 << 40),
    rule=texts,
    chunk_bytes=counts,
    writer=texts,
    sequence=counts,
    is_sealed=st.booleans(),
    through=st.none() | texts,
    done=st.lists(done_rows, max_size=4).map(tuple),
    begun=st.lists(texts, max_size=4).map(tuple),
    uploads=st.lists(upload_rows, max_size=4).map(tuple),
    failed=st.lists(st.builds(FailedRow, texts, texts), max_size=4).map(tuple),
    failed_count=st.integers(4, 1 << 40),
    is_complete=st.booleans(),
)


def test_a_journal_without_the_field_is_not_complete() -> None:
    document = Journal(KEY, 1, "r", 1).to_dict()
    del document["is_complete"]
    assert not Journal.from_dict(document).is_complete


@given(journals)
def test_a_journal_is_decoded_as_it_was_encoded(journal: Journal) -> None:
    assert decode_journal(encode_journal(journal)) == journal


@given(journals, st.data())
def test_a_journal_cut_short_is_refused(journal: Journal, data: Any) -> None:
    body = encode_journal(journal)
    with pytest.raises(ConfigurationInvalid):
        decode_journal(body[: data.draw(st.integers(0, len(body) - 1))])


@given(journals, st.data())
def test_a_journal_with_one_changed_byte_is_refused(journal: Journal, data: Any) -> None:
    """It may be valid JSON that names other objects."""
    body = bytearray(encode_journal(journal))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ConfigurationInvalid):
        decode_journal(bytes(body))


def test_a_journal_without_its_checksum_is_refused() -> None:
    body = json.dumps(Journal(KEY, 1, "r", 1).to_dict()).encode()
    with pytest.raises(ConfigurationInvalid, match="damaged"):
        decode_journal(body)


def test_a_deeply_nested_journal_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="not JSON"):
        decode_journal(b"[" * 100_000)


def test_the_error_of_a_newer_journal_names_its_schema_version() -> None:
    with pytest.raises(ConfigurationInvalid, match="schema_version 2"):
        decode_journal(b'{"schema_version": 2, "crc64": 7}')


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"schema_version": True},
        {"transfer_key": "../../etc"},
        {"transfer_key": ""},
        {"epoch": -1},
        {"epoch": "1"},
        {"through": 7},
        {"done": [{"key": "k"}]},
        {"begun": "abc"},
        {"uploads": [{**UPLOAD, "part_bytes": 0}]},
        {"uploads": [{**UPLOAD, "size_bytes": -1}]},
        {"failed": [{"key": "k", "code": "c"}], "failed_count": 0},
        {"unknown": 1},
    ],
)
def test_a_broken_journal_is_refused(change: dict[str, Any]) -> None:
    good = Journal(transfer_key=KEY, epoch=1, rule="r", chunk_bytes=1).to_dict()
    assert Journal.from_dict(json.loads(json.dumps(good)))
    with pytest.raises(ConfigurationInvalid):
        Journal.from_dict({**good, **change})


def test_a_journal_that_is_too_long_for_a_call_is_refused() -> None:
    journal = Journal(transfer_key=KEY, epoch=1, rule="r", chunk_bytes=1)
    long = replace(journal, begun=("k" * 1000,) * (MAX_JOURNAL_BYTES // 1000))
    with pytest.raises(ConfigurationInvalid, match="shorter keys"):
        encode_journal(long)


def test_the_keys_of_journals() -> None:
    key = journal_key("out/", KEY, 7)
    assert key.startswith(journals_prefix("out/", KEY))
    assert key == f"out/.skyplane/jobs/{KEY}/0000000007"
    assert epoch_of(key) == 7
    assert epoch_of(journals_prefix("", KEY) + "notes.txt") is None
    # A listing is in order of epochs.
    assert journal_key("", KEY, 9) < journal_key("", KEY, 10)


@pytest.mark.parametrize(
    ("prefix", "recursive", "folder"),
    [
        ("", True, ""),
        ("/", True, ""),
        ("out", True, "out/"),
        ("out/", True, "out/"),
        ("out/file.csv", False, "out/"),
        ("file.csv", False, ""),
        ("out/", False, "out/"),
        ("/", False, ""),
    ],
)
def test_the_folder_of_a_destination(prefix: str, recursive: bool, folder: str) -> None:
    assert folder_of_destination(prefix, recursive=recursive) == folder


def test_lengths_of_parts() -> None:
    row = UploadRow("k", "id", "s", "e", size_bytes=25, part_bytes=10)
    assert [row.length_of(number) for number in (0, 1, 2, 3, 4)] == [0, 10, 10, 5, 0]


def test_the_digest_covers_the_rule_and_not_how_it_is_carried_out() -> None:
    store = StoreSpec("memory", "b")
    spec = TransferSpec(store, store, "from/", "to/")
    same = [
        replace(spec, chunk_bytes=1),
        replace(spec, allow_empty=True),
        # A run that may leave failed objects continues a run that may not.
        replace(spec, allow_failed=True),
        replace(spec, server_side_copy=True),
    ]
    other = [
        replace(spec, conflict="fail"),
        # An unverified object does not count as verified.
        replace(spec, verify="none"),
        replace(spec, source_prefix="else/"),
        replace(spec, include=("*.csv",)),
        replace(spec, publish_last=("x",)),
        replace(spec, destination=StoreSpec("memory", "c")),
    ]
    assert {rule_digest(row) for row in same} == {rule_digest(spec)}
    assert len({rule_digest(row) for row in [spec, *other]}) == 1 + len(other)
