"""Verifies what a sink has written, and removes an object that is not what was sent."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Final

from skyplane_gateway.common.checksum import crc32c as checksum
from skyplane_gateway.common.errors import (
    WAITED_FOR,
    Cancelled,
    NotFound,
    PreconditionFailed,
    ReadBackMismatch,
    SkyplaneError,
    StoreUnavailable,
)
from skyplane_gateway.common.job_options import Verification
from skyplane_gateway.common.objects import IF_ABSENT, ObjectInfo, Precondition
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.readback import read_crc32c
from skyplane_gateway.stores.wrappers.retrying import try_read

log = logging.getLogger(__name__)

#: Removed objects that are remembered, so that their next write has the right precondition.
_REMEMBERED: Final = 10_000


class WriteVerifier:
    """Compares written objects with what was sent. Thread-safe.

    Args:
        verify: `stored` trusts the checksum of a store that computes one, and reads back from
            any other; `reread` always reads back; `none` never compares.
    """

    def __init__(self, store: ObjectStore, verify: Verification) -> None:
        self._store = store
        self._verify = verify
        self.trusts_store = verify != "reread"
        #: Key -> the ETag that we replaced, where we have removed our own object since.
        self._removed: dict[str, str | None] = {}
        #: Bad objects that were not removed, with the precondition of their write.
        self._unremoved: list[tuple[ObjectInfo, Precondition]] = []
        self._lock = threading.Lock()

    def ensure_stored(
        self, info: ObjectInfo, size_bytes: int, crc32c: int, precondition: Precondition
    ) -> None:
        """Check that the object `info`, written under that precondition, has these bytes.

        Raises:
            ReadBackMismatch: it has not, and was removed.
            PreconditionFailed: another writer has replaced it meanwhile.
        """
        if self._is_exempt(info.key, size_bytes):
            return
        found = self._reported(info)
        if found is None:
            found = read_crc32c(self._store, info, size_bytes)
        if found != crc32c:
            # The response may be wrong, and others may use the object already: read it again.
            found = read_crc32c(self._store, info, size_bytes)
        if found == crc32c:
            with self._lock:
                self._removed.pop(info.key, None)
            return
        try:
            self._remove(info, precondition)
        except (*WAITED_FOR, Cancelled, StoreUnavailable):
            # The transfer may end meanwhile, and nobody else knows that the object is bad.
            with self._lock:
                self._unremoved.append((info, precondition))
            raise
        what = (
            f"reads back with other bytes (crc32c {found:#010x}, sent {crc32c:#010x})"
            if found is not None
            else "cannot be read back whole"
        )
        hole = (
            "; what it had replaced is gone, and the source still has the object"
            if precondition.if_match is not None
            else ""
        )
        raise ReadBackMismatch(f"{info.key!r} was written but {what}; it was removed{hole}")

    async def is_stored(self, info: ObjectInfo, size_bytes: int, crc32c: int) -> bool:
        """`ensure_stored` for a small object, without a thread; False where that has to look."""
        if self._is_exempt(info.key, size_bytes):
            return True
        found = self._reported(info)
        if found is None:
            body = await try_read(self._store, info.key, length=size_bytes, if_match=info.etag)
            found = None if body is None else checksum(body.data)
        if found != crc32c:
            return False
        with self._lock:
            self._removed.pop(info.key, None)
        return True

    def _is_exempt(self, key: str, size_bytes: int) -> bool:
        # A directory marker has no bytes, and a file store cannot read it.
        return self._verify == "none" or (key.endswith("/") and size_bytes == 0)

    def _reported(self, info: ObjectInfo) -> int | None:
        """The store's own checksum of the bytes, if it counts."""
        return (
            info.crc32c if self.trusts_store and self._store.capabilities.trusts_checksum else None
        )

    def _remove(self, bad: ObjectInfo, precondition: Precondition) -> None:
        """Remove our object, but no object that has replaced it (PreconditionFailed).

        Not every store deletes on a condition. There an object is lost that is written between
        the HEAD and the DELETE, which take a moment; reading back may take minutes.
        """
        try:
            with suppress(NotFound):
                if self._store.head(bad.key).etag != bad.etag:
                    raise PreconditionFailed("it is another object now")
                self._store.delete(bad.key, if_match=bad.etag)
        except PreconditionFailed as error:
            raise PreconditionFailed(
                f"{bad.key!r} was written over while it was read back; write it again",
                is_permanent=False,
            ) from error
        with self._lock:
            if len(self._removed) < _REMEMBERED:
                self._removed.setdefault(bad.key, precondition.if_match)

    def remove_rest(self) -> None:
        """Try again to remove bad objects, at the end of a transfer. Logs what stays.

        Nothing of ours stays where somebody has written over it.
        """
        with self._lock:
            rest, self._unremoved = self._unremoved, []
        for bad, precondition in rest:
            try:
                with suppress(PreconditionFailed):
                    self._remove(bad, precondition)
            except SkyplaneError as error:
                log.error("%r has wrong bytes and cannot be removed: %s", bad.key, error)

    def fence(self, key: str, precondition: Precondition) -> Precondition:
        """The precondition for a write, also after a bad object of ours was removed."""
        with self._lock:
            if precondition.if_match is None or self._removed.get(key) != precondition.if_match:
                return precondition
        return IF_ABSENT
