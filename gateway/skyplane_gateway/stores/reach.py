"""The places that the credentials of a gateway are for: what they reach, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from skyplane_gateway.common.objects import StoreSpec


@dataclass(frozen=True, slots=True)
class Reach:
    """Places in one bucket.

    Attributes:
        store: the bucket.
        folders: beginnings of keys; empty for the whole bucket, else with a slash at the end.
        keys: single objects.
        writes: objects may be written and deleted, too.
        keeps_tags: the tags of objects may be read or written, too.
    """

    store: StoreSpec
    folders: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    writes: bool = False
    keeps_tags: bool = False

    @property
    def tried_prefix(self) -> str:
        """A prefix that may be listed."""
        return (*self.folders, *self.keys)[0]

    @property
    def urls(self) -> str:
        """The places, for messages."""
        return ", ".join(self.store.url(text) for text in (*self.folders, *self.keys))


def widened(reaches: Sequence[Reach]) -> tuple[Reach, ...] | None:
    """The same places, with the longest text shortened to its parent; None if none is left."""
    longest = max((text for one in reaches for text in (*one.folders, *one.keys)), key=len)
    return tuple(_with_parent(one, longest) for one in reaches) if longest else None


def _with_parent(reach: Reach, text: str) -> Reach:
    if text not in (*reach.folders, *reach.keys):
        return reach
    parent = text[: text[:-1].rfind("/") + 1]
    # What lies below the parent needs no text of its own.
    kept = tuple(one for one in reach.folders if not one.startswith(parent))
    keys = tuple(one for one in reach.keys if not one.startswith(parent))
    return replace(reach, folders=(parent, *kept), keys=keys)
