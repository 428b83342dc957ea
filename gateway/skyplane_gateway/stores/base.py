"""The whole contract of an object store: one Protocol, synchronous and thread-safe.

The service calls a store from a bounded pool of threads; every method may be called
from several at once, and several processes may work on one upload. Everything goes
through this Protocol, so a wrapper (retry, limit, fault) is an object that holds one
and has its methods.

Common to all methods:

* Errors are leaves of `skyplane_gateway.errors.StoreError`, decided by the store's own
  error codes; `is_permanent` says whether the same call may be made again.
* A store sends each request once, and raises `Throttled` or `StoreUnavailable` when it
  fails in transit. `wrappers.retrying.RetryingStore` retries and limits the rate.
* No method waits for ever: connecting and each read or write of the socket is bounded.
* Keys are `str` of UTF-8 text, taken verbatim: nothing is normalised. A key that the
  store cannot hold raises `InvalidKey` before anything is sent.
* "Calls" below counts requests that a store bills, without retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from skyplane_gateway.errors import ObjectTooLarge, StoreUnavailable
from skyplane_gateway.objects import (
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

#: Whether a caller wants a key; of one that ends in a slash, anything that begins with it.
Wants = Callable[[str], bool]


class Reader(Protocol):
    """The body of one ranged read; a context manager, used by one thread at a time."""

    @property
    def attributes(self) -> ObjectAttributes | None:
        """What came with the answer, at no extra call; None from stores that have none."""

    @property
    def not_carried(self) -> tuple[str, ...]:
        """See `ObjectInfo.not_carried`; from the same answer."""

    def readinto(self, buffer: memoryview) -> int:
        """Fill the front of `buffer`; return how many bytes, 0 only at the range's end.

        May return fewer than asked for while more are to come.

        Raises:
            StoreUnavailable: the body ended before the range did, or the connection broke.
        """

    def close(self) -> None:
        """Give the connection back; harmless when called again."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class ObjectStore(Protocol):
    """One bucket of one store, opened with one set of credentials."""

    @property
    def spec(self) -> StoreSpec: ...

    @property
    def capabilities(self) -> StoreCapabilities: ...

    def check(self, prefix: str = "") -> None:
        """See that the bucket exists and may be listed under `prefix`. 1 call, idempotent.

        Raises:
            NotFound: no such bucket. PermissionDenied, Unauthenticated: as they say.
            StoreUnavailable: the endpoint does not answer.
        """

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        """Every object whose key starts with `prefix`, ascending by the key's UTF-8 bytes.

        `prefix` is text, not a folder: `a` finds `a`, `a/b` and `ab`. `start_after` skips
        keys up to and including it; with it a broken listing can be taken up again. One
        call per 1000 keys (S3), made lazily while the iterator is consumed, so an error
        can come after some keys. What a file store cannot read or name is an error too, unless
        `wants` says that the caller would leave it out. It never ends early in silence: a
        repeated or missing continuation token and keys out of order raise `StoreError`.
        """

    def head(self, key: str) -> ObjectInfo:
        """The object with its attributes, and its checksum where it can be trusted. 1 call.

        Raises:
            NotFound: there is no such object.
        """

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        """Open `length` bytes from `offset` of the version `if_match`. 1 call, idempotent.

        The range must lie inside the object. `length` 0 asks the store too, so that the
        pin is checked. A retry reads the range again from its start.

        Raises:
            PreconditionFailed: the object is no longer that version.
            NotFound: it is gone.
            StoreUnavailable: the answer is not that range (200 instead of 206, another
                length).
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

        Idempotent without a precondition. With one, a repetition after an answer that
        was lost is refused by the store; the store then looks (1 more call) whether what
        is there is what was sent and, if so, returns it as written. `crc32c` is checked
        against the bytes by the store where it can.

        Raises:
            PreconditionFailed: somebody else's object is there, or the version changed.
                `is_permanent` is False when it lost a race that may be run again.
            ChecksumMismatch: the bytes do not have that checksum.
        """

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        """Begin a multipart upload and return its id. 1 call; NOT idempotent.

        A lost answer leaves an open upload that only `list_uploads` finds. Nothing is
        visible under the key before `complete_upload`.
        """

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        """Store part `number` (from 1), which starts at `offset` of the object. 1 call.

        Idempotent: the same number again replaces the part. Parts come in any order and
        from any process. On return the part is durable.

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
        """Make the parts, ascending by number, the object. 1 call (S3: 2, it looks after).

        `size_bytes` and `crc32c` are those of the whole; the store compares them where
        it can, before the object appears. What it says of the object that did appear is in
        the answer, to be compared there. A repetition after a lost answer finds no upload;
        the store then looks whether the object there is this one and returns it as
        completed. A 200 answer with an error inside is an error.

        Raises:
            NotFound: no such upload, and the object there is not this one.
            PreconditionFailed: as for `put`; the upload is still open unless the store
                dropped it, so abort it.
            ChecksumMismatch: the whole has another checksum, or a part is not there any more
                as it was acknowledged.
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
            if_match: only that version. A service that knows no conditional deletes deletes
                what is there: look first.

        Raises:
            PreconditionFailed: it is another version.
            NotFound: with `if_match`, some stores say so of what is gone.
        """

    def close(self) -> None:
        """Drop the connections; harmless when called again."""


def read_object(
    store: ObjectStore, key: str, *, max_bytes: int, if_match: str | None = None
) -> tuple[ObjectInfo, bytes]:
    """Read one small object whole, pinned to one version. 2 calls.

    Raises:
        ObjectTooLarge: it is larger than `max_bytes`.
        PreconditionFailed: it is not the version `if_match`, or changed between the calls.
    """
    info = store.head(key)
    if info.size_bytes > max_bytes:
        raise ObjectTooLarge(
            f"{key!r} has {info.size_bytes} bytes, more than the {max_bytes} that are read whole"
        )
    body = bytearray(info.size_bytes)
    view = memoryview(body)
    pin = if_match if if_match is not None else info.etag
    with store.read(key, offset=0, length=info.size_bytes, if_match=pin) as reader:
        while view:
            count = reader.readinto(view)
            if count == 0:
                raise StoreUnavailable(f"the body of {key!r} ended early; try again")
            view = view[count:]
    return info, bytes(body)
