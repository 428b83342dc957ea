"""The journal: a small document that names what a transfer has begun and ended.

It is one object per transfer and epoch, `.skyplane/jobs/<transfer key>/<epoch>` below the
folder of the destination. It is a hint: what the store does not confirm, or no journal names,
is done again. So it may lag behind the store, except for uploads: the journal names the intent
of an upload before the upload begins.

The bytes of its rows are bounded (see `JournalState`), so that a full journal stays below
`MAX_JOURNAL_BYTES`, which one control call carries.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.common.schema import Document, as_mapping
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.journal.totals import Totals
from skyplane_gateway.selection.key_mapping import folder_of
from skyplane_gateway.selection.selection_rule import JOURNAL_FOLDER

SCHEMA_VERSION: Final = 1

#: Longest journal that is written or read, in bytes of JSON.
MAX_JOURNAL_BYTES: Final = 12 << 20

_EPOCH_DIGITS: Final = 10

_CHECKSUM: Final = "crc32c"

_PLACE: Final = re.compile(
    rf"(?P<folder>(?:.*/)?){re.escape(JOURNAL_FOLDER)}(?P<transfer_key>[0-9a-f]{{1,128}})/[^/]+",
    re.DOTALL,
)

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class DoneRow:
    """An object at the destination, as this transfer wrote it.

    Attributes:
        key, etag: at the destination.
        source_etag: the version that was read.
        is_last: it was published after all others.
        is_fresh: its source had been written shortly before, so that times alone cannot tell
            whether it was written again since.
    """

    key: str
    etag: str
    source_etag: str
    size_bytes: int
    crc32c: int
    is_last: bool = False
    is_fresh: bool = False


@dataclass(frozen=True, slots=True)
class UploadRow:
    """A multipart upload that has begun, or that a lead intends to begin.

    Attributes:
        key: at the destination.
        upload_id: None for an intent: the request may have been made or not.
        source_key, source_etag, size_bytes: the version that is copied.
        part_bytes: length of every part but the last.
        attributes: digest of the attributes that it began with; None where there are none, or
            an older release wrote the row.
        crc32c: of the whole, once the commit has begun; None before.
        noted_unix_s: for an intent of an earlier lead: when that lead last wrote its journal,
            by the store's clock. None for an intent of this lead.
        is_server_side: the store copies all of its parts itself.
    """

    key: str
    upload_id: str | None
    source_key: str
    source_etag: str
    size_bytes: int
    part_bytes: int
    crc32c: int | None = None
    noted_unix_s: float | None = None
    attributes: str | None = None
    is_server_side: bool = False

    def __post_init__(self) -> None:
        if self.size_bytes < 0 or self.part_bytes < 1:
            raise ConfigurationInvalid("an upload has a negative size or empty parts")

    def length_of(self, number: int) -> int:
        """Bytes of a part, counted from 1; 0 where there is no such part."""
        start = (number - 1) * self.part_bytes
        return max(0, min(self.part_bytes, self.size_bytes - start)) if number >= 1 else 0


@dataclass(frozen=True, slots=True)
class LostRow:
    """Requests for an upload without an answer: the store may have begun one, or do so later.

    Attributes:
        key: at the destination.
        since_unix_s, until_unix_s: times of the first and the last request, by the lead's clock.
    """

    key: str
    since_unix_s: float
    until_unix_s: float


@dataclass(frozen=True, slots=True)
class FailedRow:
    """An object that could not be copied, and the code of its error."""

    key: str
    code: str


@dataclass(frozen=True, slots=True)
class Journal(Document, what="a journal", version=SCHEMA_VERSION):
    """What the lead of one epoch recorded.

    Attributes:
        rule: digest of source, destination and rule. From a journal of another rule, a lead uses
            only the uploads, to abort them.
        writer: random name of the lead; `sequence` counts its writes.
        is_sealed: a newer lead has taken over; no lead writes this journal any more.
        began_unix_s: when the first epoch of this rule began, by the clock of its lead; None
            where that is not known.
        through: every ordinary key (not published last) up to this one has ended, except those
            in `begun` and `failed`. None: no key has ended.
        done: objects beyond `through`, objects that were published last, and fresh objects up
            to `through`.
        begun: keys that had begun and had not ended: all up to `through`, and as many beyond
            it as there was room for.
        uploads: open or intended; of several uploads of one key the last is continued.
        lost: requests for uploads without an answer, also of keys that have ended since.
        failed: keys that failed, as many as there was room for; `failed_count` counts all.
        is_complete: every listed object of this rule is at the destination, and no object was
            listed since. A move leaves an empty source, which is no error then.
        totals: of all epochs of this rule, this one included.
    """

    transfer_key: str
    epoch: int
    rule: str
    chunk_bytes: int
    writer: str = ""
    sequence: int = 0
    is_sealed: bool = False
    began_unix_s: float | None = None
    through: str | None = None
    done: tuple[DoneRow, ...] = ()
    begun: tuple[str, ...] = ()
    uploads: tuple[UploadRow, ...] = ()
    lost: tuple[LostRow, ...] = ()
    failed: tuple[FailedRow, ...] = ()
    failed_count: int = 0
    is_complete: bool = False
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        _ensure_transfer_key(self.transfer_key)
        if self.epoch < 0 or self.sequence < 0 or self.failed_count < len(self.failed):
            raise ConfigurationInvalid("a journal's epoch, sequence or count is wrong")

    def sealed(self) -> Journal:
        """This journal, sealed by a newer lead."""
        return replace(self, is_sealed=True)


def encode_journal(journal: Journal) -> bytes:
    """The journal's object: a JSON document whose last field is the checksum of the others."""
    others = _ENCODER.encode(journal.to_dict()).encode().removesuffix(b"}")
    body = others + _last_field(others)
    if len(body) > MAX_JOURNAL_BYTES:
        raise ConfigurationInvalid(
            f"the journal has {len(body)} bytes, more than {MAX_JOURNAL_BYTES}; "
            "copy prefixes with shorter keys in transfers of their own"
        )
    return body


def decode_journal(body: bytes) -> Journal:
    """Raises ConfigurationInvalid: it is damaged, or this release cannot read it."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ConfigurationInvalid(f"a journal is not JSON: {error}") from error
    document = dict(as_mapping(data, "a journal"))
    document.pop(_CHECKSUM, None)
    # A changed letter of a key would make a valid journal of other objects.
    others = body.rfind(b",")
    is_sound = body[others:] == _last_field(memoryview(body)[:others])
    if not is_sound and document.get("schema_version") == SCHEMA_VERSION:
        raise ConfigurationInvalid("a journal is damaged: its checksum does not match")
    return Journal.from_dict(document)


def _last_field(others: Buffer) -> bytes:
    """The checksum field, which follows all others."""
    from skyplane_gateway.common.checksum import crc32c

    return f',"{_CHECKSUM}":{crc32c(others)}}}'.encode()


def encoded_bytes(row: DoneRow | FailedRow | LostRow | str) -> int:
    """Length of that in a journal."""
    if isinstance(row, str):
        return len(_ENCODER.encode(row))
    names = row.__dataclass_fields__
    # As a list, which is quicker to make than a document; each name adds its quotes and a colon.
    values = [getattr(row, name) for name in names]
    return len(_ENCODER.encode(values)) + sum(map(len, names)) + 3 * len(names)


def rule_digest(spec: TransferSpec) -> str:
    """Digest of source, destination and rule.

    Two transfers of one digest end with the same objects, verified alike. How they cut the
    objects is not part of it.
    """
    document = spec.to_dict()
    for name in (
        *("chunk_bytes", "whole_bytes", "allow_empty", "allow_failed", "server_side_copy"),
        *("sinks", "manifest_at", "trust_manifest", "handed_manifest"),
    ):
        del document[name]
    if spec.on_edited_copy == "replace":
        del document["on_edited_copy"]  # Journals of the last release have no such rule.
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def attributes_digest(attributes: ObjectAttributes | None) -> str | None:
    """Digest of an object's attributes; None where there are none."""
    if attributes is None:
        return None
    text = json.dumps(attributes.to_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def folder_of_destination(destination_prefix: str, *, recursive: bool) -> str:
    """The folder that a transfer writes to: empty, or ending in a slash."""
    if recursive:
        return folder_of(destination_prefix)
    return destination_prefix[: destination_prefix.rfind("/") + 1].removeprefix("/")


def journals_prefix(folder: str, transfer_key: str) -> str:
    """The prefix of the keys of a transfer's journals."""
    _ensure_transfer_key(transfer_key)
    return f"{folder}{JOURNAL_FOLDER}{transfer_key}/"


def journal_key(folder: str, transfer_key: str, epoch: int) -> str:
    """The key of one journal; a listing has those of a transfer in order of epochs."""
    return f"{journals_prefix(folder, transfer_key)}{epoch:0{_EPOCH_DIGITS}d}"


def epoch_of(key: str) -> int | None:
    """The epoch of a journal, by its key; None for other objects."""
    name = key[key.rfind("/") + 1 :]
    return int(name) if len(name) >= _EPOCH_DIGITS and name.isdecimal() else None


def place_of(key: str) -> tuple[str, str] | None:
    """(folder, transfer key) of a journal, by its key; None for other objects."""
    if JOURNAL_FOLDER not in key:
        return None  # Quickly: a sweep asks for every key that it lists.
    found = _PLACE.fullmatch(key)
    if found is None or epoch_of(key) is None:
        return None
    return found["folder"], found["transfer_key"]


def folders_above(key: str) -> Iterator[str]:
    """For `a/b/c`: the root, `a/` and `a/b/`."""
    yield ""
    for index, letter in enumerate(key):
        if letter == "/":
            yield key[: index + 1]


def _ensure_transfer_key(key: str) -> None:
    # It becomes part of a key, so it must not contain a path.
    if not key or len(key) > 128 or not all(letter in "0123456789abcdef" for letter in key):
        raise ConfigurationInvalid(f"{key[:80]!r} is no transfer key; it must be hex")
