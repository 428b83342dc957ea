"""The memory of real gateways, over stores with synthetic objects."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import buckets, copy_spec, route
from tests.memory_store import MemoryReader

from skyplane_gateway.common.objects import ObjectAttributes, ObjectInfo, StoreSpec
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore, Wants
from skyplane_gateway.stores.checksums import crc32c_of

#: What the allocator may keep beyond what the first run had needed.
MAY_GROW_MIB = 24.0


class _MadeUp:
    """A store with `count` small objects that only counts what is written."""

    count = 0
    written = 0

    def __init__(self, store: ObjectStore, *, is_source: bool) -> None:
        self._store = store
        self._is_source = is_source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        if not self._is_source or ".skyplane" in prefix:
            yield from self._store.list(prefix, start_after=start_after)
            return
        for number in range(_MadeUp.count):
            key = f"{number:09}"
            yield ObjectInfo(key, len(key), f'"{key}"', 1.0)

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Any:
        if not self._is_source:
            return self._store.read(key, offset=offset, length=length, if_match=if_match)
        return MemoryReader(memoryview(key.encode()), ObjectAttributes())

    def put(self, key: str, data: Any, **more: Any) -> ObjectInfo:
        if ".skyplane" in key:
            return self._store.put(key, data, **more)
        assert bytes(data) == key.encode()
        _MadeUp.written += 1
        return ObjectInfo(key, len(data), f'"{key}"', 2.0, crc32c_of(bytes(data)))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def resident_mib(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1024


@pytest.mark.soak
def test_gateways_take_no_more_for_many_objects_than_for_few(
    fleet_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that leads, a relay and a sink, all in this process."""
    source, destination = buckets()

    def open_made_up(spec: StoreSpec, credentials: Any = None) -> Any:
        return _MadeUp(open_store(spec, credentials), is_source=spec == source)

    monkeypatch.setattr("skyplane_gateway.transfer_sides.open_store", open_made_up)

    async def peak_mib(count: int) -> float:
        _MadeUp.count, _MadeUp.written = count, 0
        forget_peak()
        async with fleet_of(route(0, "a", "r", "b"), over_tls=True) as fleet:
            status = await fleet.run(copy_spec(source, destination))
        assert (status["state"], status["copied"]) == ("succeeded", count)
        assert _MadeUp.written == count
        return resident_mib("VmHWM")

    few = asyncio.run(peak_mib(20_000))
    many = asyncio.run(peak_mib(100_000))
    print(f"peak {few:.1f} MiB with 20,000 objects, {many:.1f} MiB with 100,000")
    assert many - few < MAY_GROW_MIB
