"""The destination of one transfer, at a sink: writes, verifies, and runs the lead's verbs.

Synchronous and thread-safe. Nothing counts as written before it has been verified: by
the store's own checksum where that can be trusted, by reading it again where not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, Literal

from skyplane_gateway.documents import reading
from skyplane_gateway.errors import (
    ChecksumMismatch,
    ConfigurationInvalid,
    SkyplaneError,
    UnknownTransfer,
)
from skyplane_gateway.protocol.checksum import crc32c as checksum
from skyplane_gateway.stores.base import (
    Body,
    ObjectAttributes,
    ObjectInfo,
    ObjectStore,
    PartInfo,
    Precondition,
)

log = logging.getLogger(__name__)

Verification = Literal["stored", "reread", "none"]

_READ_BACK_BYTES: Final = 1 << 20

#: Most objects that one `list` answers.
_MAX_PAGE: Final = 1000


class Destination:
    """Where a transfer writes.

    Args:
        store: opened with the destination's credentials.
        verify: `stored` trusts the store's checksum where the store can be trusted with
            it and reads back where not; `reread` always reads back; `none` never looks.
    """

    def __init__(self, store: ObjectStore, verify: Verification) -> None:
        self.store = store
        self._verify = verify
        self._uploads: set[tuple[str, str]] = set()
        self._is_closed = False
        self._lock = threading.Lock()
        self._verbs: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "list": self._list,
            "create": self._create,
            "complete": self._complete,
            "abort": self._abort,
        }

    # -- chunks

    def put(
        self,
        key: str,
        data: Body,
        crc32c: int,
        attributes: ObjectAttributes,
        precondition: Precondition,
    ) -> ObjectInfo:
        """Write one whole object and verify it; idempotent as `ObjectStore.put`.

        Raises:
            ChecksumMismatch: what the store holds is not what was sent. It was removed.
            StoreError: as the store says.
        """
        info = self.store.put(
            key, data, attributes=attributes, precondition=precondition, crc32c=crc32c
        )
        self._ensure_stored(info, len(data), crc32c)
        return info

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, offset: int, crc32c: int
    ) -> PartInfo:
        """Store one part; the whole is verified when it is completed."""
        return self.store.put_part(key, upload_id, number, data, offset=offset, crc32c=crc32c)

    # -- the lead's verbs

    def run(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a verb that came over the control API.

        Raises:
            ConfigurationInvalid: no such verb, or its arguments are not what it takes.
            StoreError: as the store says.
        """
        call = self._verbs.get(verb)
        if call is None:
            raise ConfigurationInvalid(f"a sink has no verb {verb!r}")
        with reading(f"what the verb {verb!r} was given"):
            return call(arguments)

    def _list(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        limit = min(int(arguments["limit"]), _MAX_PAGE)
        rows = self.store.list(arguments["prefix"], start_after=arguments["start_after"])
        page = list(islice(rows, limit))
        return {"objects": [row.to_dict() for row in page], "more": len(page) == limit}

    def _create(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        attributes = arguments["attributes"]
        key = arguments["key"]
        upload_id = self.store.create_upload(
            key, ObjectAttributes.from_dict(attributes) if attributes is not None else None
        )
        with self._lock:
            is_late = self._is_closed
            if not is_late:
                self._uploads.add((key, upload_id))
        if is_late:
            # Nobody will hear of it: the transfer ended while the store was making it.
            self.store.abort_upload(key, upload_id)
            raise UnknownTransfer(f"the transfer ended while the upload of {key!r} began")
        return {"upload_id": upload_id}

    def _complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key, upload_id = arguments["key"], arguments["upload_id"]
        size, crc32c = int(arguments["size_bytes"]), int(arguments["crc32c"])
        info = self.store.complete_upload(
            key,
            upload_id,
            [PartInfo.from_dict(part) for part in arguments["parts"]],
            precondition=Precondition.from_dict(arguments["precondition"]),
            size_bytes=size,
            crc32c=crc32c,
        )
        with self._lock:
            self._uploads.discard((key, upload_id))
        self._ensure_stored(info, size, crc32c)
        return {"etag": info.etag, "crc32c": crc32c}

    def _abort(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key, upload_id = arguments["key"], arguments["upload_id"]
        self.store.abort_upload(key, upload_id)
        with self._lock:
            self._uploads.discard((key, upload_id))
        return {}

    # -- verification

    def _ensure_stored(self, info: ObjectInfo, size_bytes: int, crc32c: int) -> None:
        """See that the object `info` has these bytes.

        Raises:
            ChecksumMismatch: it has not. It was removed, so that nobody takes it for good.
        """
        # A folder's mark has no bytes, and a file store cannot read it.
        if self._verify == "none" or (info.key.endswith("/") and size_bytes == 0):
            return
        trusted = self.store.capabilities.trusts_checksum and info.crc32c is not None
        if self._verify == "stored" and trusted:
            found: int | None = info.crc32c
        else:
            found = self._read_back(info, size_bytes)
        if found != crc32c:
            self.store.delete(info.key)
            raise ChecksumMismatch(
                f"{info.key!r} was written but reads back with other bytes "
                f"(crc32c {found:#010x}, sent {crc32c:#010x}); it was removed"
                if found is not None
                else f"{info.key!r} was written but cannot be read back whole; it was removed"
            )

    def _read_back(self, info: ObjectInfo, size_bytes: int) -> int | None:
        """CRC32C of what the store holds; None when it has another length."""
        buffer = memoryview(bytearray(min(size_bytes, _READ_BACK_BYTES) or 1))
        found, left = 0, size_bytes
        with self.store.read(info.key, offset=0, length=size_bytes, if_match=info.etag) as reader:
            while left:
                count = reader.readinto(buffer[: min(left, len(buffer))])
                if count == 0:
                    return None
                found = checksum(buffer[:count], found)
                left -= count
        return found

    # -- the end

    def close(self) -> None:
        """Abort the uploads that are still open and let go of the store."""
        with self._lock:
            uploads, self._uploads = tuple(self._uploads), set()
            self._is_closed = True
        for key, upload_id in uploads:
            try:
                self.store.abort_upload(key, upload_id)
            except SkyplaneError as error:
                log.warning("the upload %s of %r stays open: %s", upload_id, key, error)
        self.store.close()
