"""Copies that a store makes itself: parts of an upload from an object of the same service.

The bytes pass through no gateway. Everything else is as for parts that are sent: the journal, the
precondition at the commit, the checksum of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from skyplane_gateway.common.objects import ObjectAttributes, PartInfo, StoreSpec
from skyplane_gateway.common.schema import encode


@dataclass(frozen=True, slots=True)
class CopySource:
    """A range of one version of an object.

    Attributes:
        store: its bucket, at the endpoint of the store that copies.
        etag: the version; never a `time_pin`.
        offset, length: in bytes; the whole object where the store copies only objects.
    """

    store: StoreSpec
    key: str
    etag: str
    offset: int
    length: int

    def to_dict(self) -> dict[str, Any]:
        return {**encode(self), "store": self.store.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "store": StoreSpec.from_dict(data["store"])})


@runtime_checkable
class CopiesParts(Protocol):
    """A store whose `capabilities.server_side_copy` is not `none`."""

    def create_copy_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        """As `ObjectStore.create_upload`, for an upload all of whose parts are copied."""

    def copy_part(self, key: str, upload_id: str, number: int, source: CopySource) -> PartInfo:
        """Have the store copy a range as part `number` (from 1). 1 call; idempotent.

        The `crc32c` of the part is None where the store computes none that can be trusted. The
        caller then compares the checksum of the whole with that of the source.

        Raises:
            PreconditionFailed: the source is no longer that version.
            NotFound: the source is gone, or the upload was completed or aborted.
            PermissionDenied: these credentials may not read the source.
            StoreError: the store does not copy here, as `is_permanent` says.
        """
