"""Every request of a store, as the sides of a transfer send them; for what credentials allow."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import NotFound
from skyplane_gateway.common.objects import ObjectAttributes, Precondition
from skyplane_gateway.stores import ObjectStore
from skyplane_gateway.stores.async_requests import requests_of
from skyplane_gateway.stores.copy_source import CopiesParts, CopySource

_PART: Final = bytes(5 * 2**20)
#: What sends nothing by itself.
_SILENT: Final = {"spec", "capabilities", "close"}


class _Noted:
    """A store that tells which of its methods were called."""

    def __init__(self, store: ObjectStore, called: set[str]) -> None:
        self._store = store
        self._called = called

    def __getattr__(self, name: str) -> Any:
        self._called.add(name)
        return getattr(self._store, name)


def read_all(store: ObjectStore, folder: str, key: str) -> set[str]:
    """What a source does with an object; the methods that were called."""
    called: set[str] = set()
    noted: Any = _Noted(store, called)
    noted.check(folder)
    assert key in [one.key for one in noted.list(folder)]
    info = noted.head(key)
    for length in (info.size_bytes, 1, 0):
        with noted.read(key, offset=0, length=length, if_match=info.etag):
            pass
    with suppress(NotFound):
        noted.head(f"{key} is not there")
    asyncio.run(_read_async(store, key, info.size_bytes))
    return called


async def _read_async(store: ObjectStore, key: str, length: int) -> None:
    requests = requests_of(store)
    if requests is not None:
        await requests.head(key)
        await requests.read(key, length=length, if_match=None)


def write_all(
    store: ObjectStore, folder: str, attributes: ObjectAttributes, source: CopySource | None = None
) -> set[str]:
    """What a sink does below a folder; the methods that were called.

    Args:
        source: an object of at least 5 MiB that the store copies itself.
    """
    called: set[str] = set()
    noted: Any = _Noted(store, called)
    key = f"{folder}written"
    made = noted.put(key, b"x", attributes=attributes, precondition=Precondition(if_absent=True))
    again = noted.put(key, b"y", precondition=Precondition(if_match=made.etag))
    called |= read_all(store, folder, key)
    noted.delete(key, if_match=again.etag)
    asyncio.run(_put_async(store, key, attributes))
    noted.delete(key)
    upload = noted.create_upload(key, attributes)
    parts = [
        noted.put_part(key, upload, number, _PART, offset=offset, crc32c=crc32c(_PART))
        for number, offset in ((1, 0), (2, len(_PART)))
    ]
    list(noted.list_uploads(folder))
    noted.list_parts(key, upload)
    noted.complete_upload(key, upload, parts, size_bytes=2 * len(_PART))
    noted.abort_upload(key, noted.create_upload(key))
    if source is not None:
        copy = f"{folder}copied"
        upload = noted.create_copy_upload(copy, attributes)
        part = noted.copy_part(copy, upload, 1, source)
        noted.complete_upload(copy, upload, [part], size_bytes=source.length)
        noted.delete(copy)
    noted.delete(key)
    return called


async def _put_async(store: ObjectStore, key: str, attributes: ObjectAttributes) -> None:
    requests = requests_of(store)
    if requests is not None:
        absent = Precondition(if_absent=True)
        given: Any = {"attributes": attributes, "precondition": absent, "crc32c": crc32c(b"z")}
        await requests.put(key, b"z", **given)


def verbs_of(*protocols: type[Any]) -> set[str]:
    """The methods that send requests. A new one needs a line above, and a right."""
    names = {name for one in (ObjectStore, *protocols) for name in vars(one) if name[0] != "_"}
    return names - _SILENT


#: Of stores that copy by themselves, and of others.
COPYING: Final = verbs_of(CopiesParts)
PLAIN: Final = verbs_of()
