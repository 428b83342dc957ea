"""A file store whose objects cost nothing: it makes them up, and keeps nothing that is written.

A folder `OBJECTSxBYTES` holds so many objects of so many bytes; any other is empty. Reads leave
their buffer as it is. Journals are real files. `COMMAND` begins the
command line of a gateway whose file stores are such ones.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from skyplane_gateway.common.objects import (
    UNCONDITIONAL,
    Body,
    Credentials,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
    StoreSpec,
)
from skyplane_gateway.stores import registry
from skyplane_gateway.stores.async_requests import WholeObject
from skyplane_gateway.stores.base import RangeReader, Wants
from skyplane_gateway.stores.local.store import LocalStore

_FOLDER: Final = re.compile(r"/(\d+)x(\d+)/")
_JOURNALS: Final = ".skyplane"
#: The module of such stores, by the kind of their locations; for `registry._MODULES`.
MODULES: Final = {"file": "bench.null_store"}
_NO_ATTRIBUTES: Final = ObjectAttributes()
_ROOT: Final = Path(__file__).resolve().parents[1]
COMMAND: Final = (
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from bench import null_store;"
    " null_store.run_gateway()",
)


def run_gateway() -> None:
    from skyplane_gateway.main import entry_point

    registry._MODULES.update(MODULES)
    entry_point()


def open_from_spec(spec: StoreSpec, credentials: Credentials | None) -> NullStore:
    return NullStore(spec)


class NullReader(RangeReader[None]):
    def _fill(self, view: memoryview) -> int:
        return len(view)

    def close(self) -> None:
        """Nothing is held open."""


class NullStore(LocalStore):
    """See the module. Small objects need no thread, as at services."""

    def __init__(self, spec: StoreSpec) -> None:
        super().__init__(spec)
        self._uploads = itertools.count()
        self.async_requests = NullRequests()

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        found = _FOLDER.search(prefix)
        if _JOURNALS in prefix or found is None:
            return super().list(prefix, start_after=start_after, wants=wants)
        rows = (_info(f"{prefix}{number:09}") for number in range(int(found[1])))
        return (row for row in rows if start_after is None or row.key > start_after)

    def head(self, key: str) -> ObjectInfo:
        return super().head(key) if _JOURNALS in key else _info(key)

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Any:
        if _JOURNALS in key:
            return super().read(key, offset=offset, length=length, if_match=if_match)
        return NullReader(None, length, key, None)

    def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes | None = None,
        precondition: Precondition = UNCONDITIONAL,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        if _JOURNALS in key:
            about = {"attributes": attributes, "precondition": precondition, "crc32c": crc32c}
            return super().put(key, data, **about)  # type: ignore[arg-type]
        return _info(key, len(data))

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return str(next(self._uploads))

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        return PartInfo(number, str(number), len(data), crc32c)

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
        return _info(key, size_bytes)

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Nothing is held."""


class NullRequests:
    """See `AsyncRequests`."""

    async def read(self, key: str, *, length: int, if_match: str | None) -> WholeObject:
        return WholeObject(bytes(length), _NO_ATTRIBUTES, ())

    async def head(self, key: str) -> ObjectInfo:
        return _info(key)

    async def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes,
        precondition: Precondition,
        crc32c: int,
    ) -> ObjectInfo:
        return _info(key, len(data))


def _info(key: str, size_bytes: int | None = None) -> ObjectInfo:
    found = _FOLDER.search(key)
    size = int(found[2]) if found is not None and size_bytes is None else size_bytes or 0
    return ObjectInfo(key, size, "1", 1.0)
