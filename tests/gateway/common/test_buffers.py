"""Buffers that are used again."""

from __future__ import annotations

import sys
from mmap import mmap

import pytest

from skyplane_gateway.common.buffers import BufferPool

ANY = 1 << 20


def test_a_buffer_serves_again_for_a_chunk_that_is_little_shorter() -> None:
    pool = BufferPool()
    first = pool.take(100, keep_bytes=ANY)
    pool.give(first)
    assert pool.take(80, keep_bytes=ANY) is first
    pool.give(first)
    for length in (79, 101):
        other = pool.take(length, keep_bytes=ANY)
        assert len(other) == length
        assert other is not first
    assert pool.take(100, keep_bytes=ANY) is first


def test_the_smallest_buffer_that_fits_is_taken() -> None:
    pool = BufferPool()
    for length in (100, 90, 95):
        pool.give(bytearray(length))
    assert [len(pool.take(88, keep_bytes=ANY)) for _ in range(4)] == [90, 95, 100, 88]


def test_no_more_is_kept_than_the_caller_allows() -> None:
    pool = BufferPool()
    for length in (10, 20, 30):
        pool.give(bytearray(length))
    pool.take(1000, keep_bytes=50)
    lengths = [len(pool.take(wanted, keep_bytes=50)) for wanted in (8, 16, 24)]
    assert lengths == [8, 20, 30]


def test_a_pool_that_is_cleared_keeps_nothing() -> None:
    pool = BufferPool()
    kept = bytearray(10)
    pool.give(kept)
    pool.clear()
    assert pool.take(10, keep_bytes=ANY) is not kept


@pytest.mark.parametrize("length", [4 << 20, (4 << 20) + 1, 64 << 20])
def test_long_buffers_lie_in_huge_pages_and_serve_again(length: int) -> None:
    pool = BufferPool()
    buffer = pool.take(length, keep_bytes=length)
    assert len(buffer) == length
    if sys.platform == "linux":
        assert isinstance(buffer, mmap)
    view = memoryview(buffer)
    view[0] = view[-1] = 1
    pool.give(buffer)
    assert pool.take(length, keep_bytes=length) is buffer


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has MADV_HUGEPAGE")
def test_a_kernel_without_huge_pages_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyplane_gateway.common.buffers.MADV_HUGEPAGE", -1)
    assert len(BufferPool().take(4 << 20, keep_bytes=0)) == 4 << 20
