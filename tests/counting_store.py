"""A store in memory that remembers where each of its listings began."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.memory_store import MemoryStore, create_bucket

from skyplane_gateway.common.objects import ObjectInfo, StoreSpec
from skyplane_gateway.stores.base import Wants


class CountingStore(MemoryStore):
    """An empty bucket of that name, with objects of those keys.

    Attributes:
        starts: `start_after` of each listing.
    """

    def __init__(self, bucket: str, keys: Iterable[str] = ()) -> None:
        create_bucket(bucket)
        super().__init__(StoreSpec("memory", bucket))
        self.starts: list[str | None] = []
        for key in keys:
            self.put(key, key.encode())

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        self.starts.append(start_after)
        return super().list(prefix, start_after=start_after, wants=wants)
