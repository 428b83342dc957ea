"""The contract of an object store: one Protocol, synchronous and thread-safe.

Several threads may call any method at once, and several processes may work on one upload. A
wrapper (retry, limit, fault) holds a store and has its methods.

Common to all methods:

* Errors are leaves of `skyplane_gateway.common.errors.StoreError`, decided by the store's own error
  codes. The same call may be made again unless `is_permanent`.
* A store sends each request once, and raises `Throttled` or `StoreUnavailable` when it
  fails in transit. `wrappers.retrying.RetryingStore` retries and limits the rate.
* Connecting and each read or write of a socket has a timeout.
* Keys are UTF-8 text and not normalised. A key that the store cannot hold raises `InvalidKey`
  before a request is sent.
* "Calls" below are requests that a store bills, without retries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from skyplane_gateway.common.buffers import unwritten
from skyplane_gateway.common.errors import ObjectTooLarge, StoreUnavailable
from skyplane_gateway.common.objects import (
    UNCONDITIONAL,
    Body,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
    StoreCapabilities,
    StoreSpec,
    UploadInfo,
)
from skyplane_gateway.stores.checksums import ChecksumComparison, Stated

Source = TypeVar("Source")

#: Whether a caller wants a key; for one that ends in a slash, any key below it.
Wants = Callable[[str], bool]


class Reader(Protocol):
    """The body of one ranged read; a context manager, used by one thread at a time."""

    @property
    def attributes(self) -> ObjectAttributes | None:
        """The attributes in the answer, without an extra call; None from stores without any."""

    @property
    def not_carried(self) -> tuple[str, ...]:
        """See `ObjectInfo.not_carried`; from the same answer."""

    @property
    def stated(self) -> Stated | None:
        """What the answer states of the body; None where that is a part of the object."""

    def readinto(self, buffer: memoryview) -> int:
        """Fill the front of `buffer`; return how many bytes, 0 only at the range's end.

        May return fewer bytes than fit while more follow.

        Raises:
            StoreUnavailable: the body ended before the range did, or the connection broke.
        """

    def close(self) -> None:
        """Release the connection; may be called again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class ClosingReader(ABC):
    """Closes itself at the end of a `with` block."""

    #: See `Reader`.
    stated: Stated | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class RangeReader(ClosingReader, Generic[Source]):
    """The body of one ranged read, checked for its length.

    Args:
        source: the open file or answer that `_fill` reads.
        length: of the range, in bytes.
        what: the request, as error messages name it.
    """

    def __init__(
        self,
        source: Source,
        length: int,
        what: str,
        attributes: ObjectAttributes | None,
        not_carried: tuple[str, ...] = (),
    ) -> None:
        self.attributes = attributes
        self.not_carried = not_carried
        self._source = source
        self._remaining = length
        self._what = what

    def readinto(self, buffer: memoryview) -> int:
        if self._remaining == 0 or len(buffer) == 0:
            return 0
        count = self._fill(buffer[: self._remaining])
        if count == 0:
            raise StoreUnavailable(
                f"{self._what}: the body ended {self._remaining} bytes early; read the range again"
            )
        self._remaining -= count
        return count

    @abstractmethod
    def _fill(self, view: memoryview) -> int:
        """As `readinto`, within the range; 0 where the body has ended."""


class EmptyReader(RangeReader[None]):
    """A range of no bytes."""

    def __init__(self, attributes: ObjectAttributes | None, not_carried: tuple[str, ...]) -> None:
        super().__init__(None, 0, "", attributes, not_carried)

    def _fill(self, view: memoryview) -> int:
        return 0

    def close(self) -> None:
        """Nothing is held open."""


class ComparingReader(ClosingReader):
    """Reads a body, and compares it at its end with what its store states of it.

    `readinto` raises ChecksumMismatch in place of the last bytes.
    """

    def __init__(self, reader: Reader, key: str, length: int, stated: Stated | None) -> None:
        self.attributes = reader.attributes
        self.not_carried = reader.not_carried
        self.stated = stated
        self._reader = reader
        self._remaining = length
        self.comparison = ChecksumComparison(key, stated)

    def readinto(self, buffer: memoryview) -> int:
        count = self._reader.readinto(buffer)
        self.comparison.take(buffer[:count])
        self._remaining -= count
        if self._remaining == 0:
            self.comparison.finish()
        return count

    def close(self) -> None:
        self._reader.close()


class ObjectStore(Protocol):
    """One bucket of one store, opened with one set of credentials."""

    @property
    def spec(self) -> StoreSpec: ...

    @property
    def capabilities(self) -> StoreCapabilities: ...

    def check(self, prefix: str = "") -> None:
        """Check that the bucket exists and may be listed under `prefix`. 1 call, idempotent.

        Raises:
            NotFound: no such bucket.
            PermissionDenied, Unauthenticated: the credentials do not suffice.
            StoreUnavailable: the endpoint does not answer.
        """

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        """Every object whose key starts with `prefix`, ascending by the key's UTF-8 bytes.

        `prefix` is text, not a folder: `a` finds `a`, `a/b` and `ab`. One call per 1000 keys
        (S3), made while the iterator is consumed, so an error can come after some keys.

        Args:
            start_after: skips keys up to and including this one, to continue a listing.
            wants: errors of a file store about keys that it does not want are left out.

        Raises:
            StoreError: also when the listing may be incomplete: a continuation token is
                missing or repeated, or keys are out of order.
        """

    def head(self, key: str) -> ObjectInfo:
        """The object with its attributes, and its checksum if that can be trusted. 1 call.

        Raises:
            NotFound: there is no such object.
        """

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        """Open `length` bytes from `offset` of the version `if_match`. 1 call, idempotent.

        The range must lie inside the object. `length` 0 sends a request too, to check the
        version.

        Raises:
            PreconditionFailed: the object is no longer that version.
            NotFound: it is gone.
            StoreUnavailable: the answer is another range (200 instead of 206, another length).
        """

    def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes | None = None,
        precondition: Precondition = UNCONDITIONAL,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        """Write one whole object, which appears at once or not at all. 1 call.

        Idempotent without a precondition. With one, the response to this or to an earlier request
        may be lost: a caller that is refused looks at what is there. The store compares `crc32c`
        with the bytes if it can.

        Raises:
            PreconditionFailed: there is another object, or another version. `is_permanent` is
                False after a conflict with a write at the same time.
            ChecksumMismatch: the bytes do not have that checksum.
        """

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        """Begin a multipart upload and return its id. 1 call; NOT idempotent.

        A lost response leaves an open upload that only `list_uploads` finds. Nothing is
        visible under the key before `complete_upload`.
        """

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        """Store part `number` (from 1), which starts at `offset` of the object. 1 call.

        Idempotent: the same number again replaces the part. Any process may send parts, in
        any order. On return the part is durable.

        Raises:
            NotFound: the upload was completed or aborted.
            ChecksumMismatch: the bytes do not have that checksum.
        """

    def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[PartInfo],
        *,
        precondition: Precondition = UNCONDITIONAL,
        size_bytes: int,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        """Make an object of the parts, ascending by number. 1 call (S3: 2, with a HEAD).

        The store compares `size_bytes` and `crc32c` of the whole before the object appears, if
        it can. The caller compares the returned checksum. A response 200 with an error inside is
        an error. After a lost response, of this or of an earlier request, each of the first four
        errors may mean that the object is there: the caller compares it with this one.

        Raises:
            NotFound: no such upload.
            PreconditionFailed: as for `put`. Abort the upload, since it may still be open.
            ChecksumMismatch: the whole has another checksum, or the store lost a part.
            StoreUnavailable: the request may have been carried out.
            StoreError: a part is too small.
        """

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop an open upload and its parts. 1 call, idempotent: no such upload is fine."""

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        """Open uploads of keys that start with `prefix`, in no promised order, lazily."""

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        """The stored parts of an upload, ascending. One call per 1000 parts.

        Raises:
            NotFound: no such upload.
        """

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Remove an object. 1 call, idempotent: no such object is fine.

        Args:
            if_match: only that version. A service without conditional deletes deletes any
                version, so call `head` first.

        Raises:
            PreconditionFailed: it is another version.
            NotFound: with `if_match`, from some stores, when the object is gone.
        """

    def close(self) -> None:
        """Close the connections; may be called again."""


def read_object(store: ObjectStore, key: str, *, max_bytes: int) -> tuple[ObjectInfo, bytes]:
    """Read one small object whole, pinned to one version. 2 calls.

    Raises:
        ObjectTooLarge: it is larger than `max_bytes`.
        PreconditionFailed: it changed between the calls.
    """
    info = store.head(key)
    if info.size_bytes > max_bytes:
        raise ObjectTooLarge(
            f"{key!r} has {info.size_bytes} bytes, more than the limit of {max_bytes}"
        )
    with store.read(key, offset=0, length=info.size_bytes, if_match=info.etag) as reader:
        return info, bytes(read_exactly(reader, info.size_bytes))


def read_exactly(reader: Reader, length: int) -> bytearray:
    """The next `length` bytes. Raises StoreUnavailable if the body ends before."""
    body = unwritten(length)
    view = memoryview(body)
    while view:
        count = reader.readinto(view)
        if count == 0:
            raise StoreUnavailable("the object's body ended early; read it again")
        view = view[count:]
    return body


@dataclass(frozen=True, slots=True)
class ListedRows:
    """The first rows of a listing of `prefix`, as `ObjectStore.list` has given them.

    `is_complete`: there were no more. `skipped`: keys that were left out as not wanted.
    """

    prefix: str
    rows: tuple[ObjectInfo, ...]
    is_complete: bool
    skipped: tuple[str, ...] = ()


def list_from(
    store: ObjectStore, prefix: str, listed: ListedRows | None, wants: Wants | None
) -> Iterator[ObjectInfo]:
    """As `ObjectStore.list`, but takes the rows in `listed` from there.

    Lists only what comes after them, or everything if they are of another prefix.
    """
    last = None
    if listed is not None and listed.prefix == prefix:
        if wants is not None:  # The caller may count what it does not want.
            deque(map(wants, listed.skipped), maxlen=0)
        yield from listed.rows
        if listed.is_complete:
            return
        last = listed.rows[-1].key if listed.rows else None
    yield from store.list(prefix, start_after=last, wants=wants)
