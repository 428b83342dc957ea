"""Continues a listing whose first rows another part of the process has read already."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.stores.base import ObjectStore, Wants


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
