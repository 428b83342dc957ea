from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.protocol.chunk_manifest import PartEntry
from skyplane_gateway.protocol.receipt import EntryResult
from skyplane_gateway.sink import part_cache
from skyplane_gateway.sink.part_cache import WrittenParts

TRANSFER, PLACE = b"t" * 16, PartEntry("k", "upload", 3, 2048)
DURABLE = EntryResult(None, "etag", 7)
REFUSED = EntryResult(StoreUnavailable("503").to_dict())


class Store:
    """A store whose writes end when the test says so."""

    def __init__(self) -> None:
        self.parts = WrittenParts()
        self.writes: list[asyncio.Future[EntryResult]] = []

    def send(self, **other: Any) -> asyncio.Task[EntryResult]:
        arguments = {"transfer": TRANSFER, "part": PLACE, "size_bytes": 1024, "crc32c": 7}
        return asyncio.create_task(self.parts.write(**{**arguments, **other}, write=self._write))

    def _write(self) -> asyncio.Future[EntryResult]:
        self.writes.append(asyncio.get_running_loop().create_future())
        return self.writes[-1]


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_part_that_comes_again_while_it_is_written_is_written_once() -> None:
    store = Store()
    first, again = store.send(), store.send()
    await turn()
    store.writes[0].set_result(DURABLE)
    assert [await first, await again, await store.send()] == [DURABLE] * 3
    assert len(store.writes) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"crc32c": 8},
        {"size_bytes": 1023},
        {"transfer": b"u" * 16},
        {"part": replace(PLACE, upload_id="another")},
        {"part": replace(PLACE, number=4)},
    ],
)
async def test_another_part_is_written(other: dict[str, Any]) -> None:
    store = Store()
    first, second = store.send(), store.send(**other)
    await turn()
    for write in store.writes:
        write.set_result(DURABLE)
    assert len(store.writes) == 2
    assert [await first, await second] == [DURABLE, DURABLE]


@pytest.mark.parametrize("failure", [REFUSED, OSError("no")])
async def test_what_was_not_written_is_written_again(failure: EntryResult | OSError) -> None:
    store = Store()
    first, again = store.send(), store.send()
    await turn()
    if isinstance(failure, OSError):
        store.writes[0].set_exception(failure)
        with pytest.raises(OSError, match="no"):
            await first
    else:
        store.writes[0].set_result(failure)
        assert await first == failure
    await turn()
    store.writes[1].set_result(DURABLE)
    assert await again == DURABLE


async def test_a_request_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_cache, "_WRITE_TIMEOUT_S", 0.0)

    store = Store()
    first, again = store.send(), store.send()
    while len(store.writes) < 2:
        await turn()
    store.writes[1].set_result(DURABLE)
    assert await again == DURABLE
    assert await store.send() == DURABLE
    assert not first.done()
    first.cancel()


async def test_nothing_is_remembered_where_uploads_have_no_id_or_the_transfer_has_ended() -> None:
    store = Store()
    nameless = {"part": replace(PLACE, upload_id="")}
    for other in (nameless, nameless, {}):
        sending = store.send(**other)
        await turn()
        store.writes[-1].set_result(DURABLE)
        await sending
    store.parts.forget(TRANSFER)
    sending = store.send()
    await turn()
    assert len(store.writes) == 4
    sending.cancel()


async def test_what_the_store_lost_before_a_new_epoch_is_written_again() -> None:
    store = Store()
    other = {"part": replace(PLACE, number=4)}
    first, under_way = store.send(), store.send(**other)
    await turn()
    store.writes[0].set_result(DURABLE)
    await first
    store.parts.forget_written(b"u" * 16)
    assert await store.send() == DURABLE
    store.parts.forget_written(TRANSFER)
    afresh, again = store.send(), store.send(**other)
    await turn()
    assert len(store.writes) == 3
    for write in store.writes[1:]:
        write.set_result(DURABLE)
    assert [await afresh, await under_way, await again] == [DURABLE] * 3
