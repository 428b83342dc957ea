"""Journals and uploads for tests."""

from __future__ import annotations

from typing import Any, Final

from skyplane_gateway.journal.document import Journal, UploadRow, journal_key
from skyplane_gateway.stores.base import ObjectStore

KEY: Final = "ab" * 16


def journal(epoch: int = 1, sequence: int = 1, writer: str = "w", **more: Any) -> Journal:
    return Journal(KEY, epoch, "r", 1, writer=writer, sequence=sequence, **more)


def upload(key: str, upload_id: str | None = None, **more: Any) -> UploadRow:
    return UploadRow(key, upload_id, key, "v", 10, 5, **more)


def spoil(store: ObjectStore, epoch: int) -> None:
    """Cut a stored journal short."""
    store.put(journal_key("out/", KEY, epoch), b'{"schema_version": 1, "through": "')
