"""The journal: the small document that names what a transfer has begun and ended.

One object per transfer and epoch, `.skyplane/jobs/<transfer key>/<epoch>` below the folder
of the destination. Only a hint: whatever the store does not confirm is done again, and
what a journal does not name counts as not done. So a journal may always be older than the
truth about objects; only the intent of an upload must be there before the upload is.

Rows are bounded by bytes of their JSON (see `Ledger`), so that a journal with all its
bounds reached stays below `MAX_JOURNAL_BYTES`, which one control call carries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from skyplane_gateway.config import TransferSpec
from skyplane_gateway.documents import decode
from skyplane_gateway.errors import ConfigurationInvalid
from skyplane_gateway.selection.keys import folder_of
from skyplane_gateway.selection.select import JOURNAL_FOLDER

SCHEMA_VERSION: Final = 1

#: Longest journal that is written or read, in bytes of JSON.
MAX_JOURNAL_BYTES: Final = 12 << 20

_EPOCH_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class DoneRow:
    """An object at the destination, as this transfer wrote it.

    Attributes:
        key, etag: at the destination.
        source_etag: the version that was read.
        is_last: it is one of those that are published after all others.
    """

    key: str
    etag: str
    source_etag: str
    size_bytes: int
    crc32c: int
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class UploadRow:
    """A multipart upload that was begun, or is about to be.

    Attributes:
        key: at the destination.
        upload_id: None while the store may or may not have been asked to create it.
        source_key, source_etag, size_bytes: the version that its parts are of.
        part_bytes: length of every part but the last.
        crc32c: of the whole, once the commit has begun; None before.
    """

    key: str
    upload_id: str | None
    source_key: str
    source_etag: str
    size_bytes: int
    part_bytes: int
    crc32c: int | None = None

    def __post_init__(self) -> None:
        if self.size_bytes < 0 or self.part_bytes < 1:
            raise ConfigurationInvalid("an upload has no negative size and parts of a byte or more")

    def length_of(self, number: int) -> int:
        """Bytes of part `number` (from 1); 0 where there is no such part."""
        start = (number - 1) * self.part_bytes
        return max(0, min(self.part_bytes, self.size_bytes - start)) if number >= 1 else 0


@dataclass(frozen=True, slots=True)
class FailedRow:
    """An object that ended without being copied, and the code of its error."""

    key: str
    code: str


@dataclass(frozen=True, slots=True)
class Journal:
    """What a lead of one epoch knew.

    Attributes:
        rule: digest of what is copied to where; a journal of another rule names uploads
            to abort and nothing else.
        writer: names the process that wrote it; `sequence` counts its writings.
        is_sealed: a lead of a newer epoch has taken over; nobody writes this any more.
        through: every ordinary key (not published last) up to and including this one has
            ended, save those in `begun` and `failed`. None: nothing has.
        done: objects beyond it, and those published last.
        begun: keys that had been begun and had not ended: all of those up to `through`,
            and of those beyond it as many as there was room for.
        uploads: open or intended.
        failed: keys that failed, as many as there was room for; `failed_count` is all.
    """

    transfer_key: str
    epoch: int
    rule: str
    chunk_bytes: int
    writer: str = ""
    sequence: int = 0
    is_sealed: bool = False
    through: str | None = None
    done: tuple[DoneRow, ...] = ()
    begun: tuple[str, ...] = ()
    uploads: tuple[UploadRow, ...] = ()
    failed: tuple[FailedRow, ...] = ()
    failed_count: int = 0

    def __post_init__(self) -> None:
        _ensure_transfer_key(self.transfer_key)
        if self.epoch < 0 or self.sequence < 0 or self.failed_count < len(self.failed):
            raise ConfigurationInvalid("a journal's epoch, sequence or count cannot be right")

    def sealed(self) -> Journal:
        """The same, closed by a newer lead."""
        return replace(self, is_sealed=True)

    def to_dict(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Journal:
        """Raises ConfigurationInvalid for a broken document or another schema version."""
        return decode(cls, data, "a journal", version=SCHEMA_VERSION)


def encode_journal(journal: Journal) -> bytes:
    """The journal's object.

    Raises:
        ConfigurationInvalid: it is longer than `MAX_JOURNAL_BYTES`.
    """
    body = json.dumps(journal.to_dict(), separators=(",", ":")).encode()
    if len(body) > MAX_JOURNAL_BYTES:
        raise ConfigurationInvalid(
            f"the journal has {len(body)} bytes, more than {MAX_JOURNAL_BYTES}; "
            "copy prefixes with shorter keys in transfers of their own"
        )
    return body


def decode_journal(body: bytes) -> Journal:
    """Raises ConfigurationInvalid: it is not a journal that this release reads."""
    try:
        data = json.loads(body)
    except ValueError as error:
        raise ConfigurationInvalid(f"a journal is not JSON: {error}") from error
    return Journal.from_dict(data)


def rule_digest(spec: TransferSpec) -> str:
    """Names what is copied to where, and under which rule.

    Two transfers of one digest would end with the same objects; how they cut and verify
    them is not part of it.
    """
    document = spec.to_dict()
    for name in ("chunk_bytes", "verify", "allow_empty"):
        del document[name]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def folder_of_destination(destination_prefix: str, *, recursive: bool) -> str:
    """The folder that the transfer writes to: empty, or ending in a slash."""
    if recursive:
        return folder_of(destination_prefix)
    return destination_prefix[: destination_prefix.rfind("/") + 1].removeprefix("/")


def journals_prefix(folder: str, transfer_key: str) -> str:
    """What the keys of all journals of a transfer start with.

    Raises:
        ConfigurationInvalid: it is no transfer key.
    """
    _ensure_transfer_key(transfer_key)
    return f"{folder}{JOURNAL_FOLDER}{transfer_key}/"


def journal_key(folder: str, transfer_key: str, epoch: int) -> str:
    """The key of one journal; those of one transfer are listed by epoch."""
    return f"{journals_prefix(folder, transfer_key)}{epoch:0{_EPOCH_DIGITS}d}"


def epoch_of(key: str) -> int | None:
    """The epoch that `journal_key` named; None when it is something else."""
    name = key[key.rfind("/") + 1 :]
    return int(name) if len(name) >= _EPOCH_DIGITS and name.isdecimal() else None


def _ensure_transfer_key(key: str) -> None:
    # It becomes part of an object's name: nothing in it may lead elsewhere.
    if not key or len(key) > 128 or not all(letter in "0123456789abcdef" for letter in key):
        raise ConfigurationInvalid(f"{key[:80]!r} is no transfer key; it must be hex")
