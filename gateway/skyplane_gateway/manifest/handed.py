"""Reads a manifest that the orchestrator has handed to the lead."""

from __future__ import annotations

import base64
from typing import cast

from skyplane_gateway.common.errors import NotFound
from skyplane_gateway.common.objects import ObjectInfo, StoreSpec
from skyplane_gateway.config import HandedManifest
from skyplane_gateway.manifest.document import Elsewhere
from skyplane_gateway.manifest.reader import ManifestReader
from skyplane_gateway.stores.base import ObjectStore, RangeReader


def reader_of(handed: HandedManifest, folder: str) -> ManifestReader:
    """Reads it beside listings of the folder of the copies."""
    at = Elsewhere("", handed.place, handed.kind)
    found = ManifestReader(cast("ObjectStore", _Files(handed)), folder, at)
    found.trouble = handed.trouble
    return found


class _Files:
    """The files, as a store that is only read."""

    spec = StoreSpec("handed", "manifest")

    def __init__(self, handed: HandedManifest) -> None:
        self._bodies = {name: base64.b64decode(text) for name, text in handed.files.items()}

    def head(self, key: str) -> ObjectInfo:
        if key not in self._bodies:
            raise NotFound(f"the orchestrator has handed over no {key}")
        return ObjectInfo(key, len(self._bodies[key]), "", 0.0)

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> _Range:
        self.head(key)
        body = memoryview(self._bodies[key])[offset : offset + length]
        return _Range(body, length, f"reading {key}", None)


class _Range(RangeReader[memoryview]):
    def _fill(self, view: memoryview) -> int:
        count = min(len(view), len(self._source))
        view[:count] = self._source[:count]
        self._source = self._source[count:]
        return count

    def close(self) -> None:
        """Nothing is held open."""
