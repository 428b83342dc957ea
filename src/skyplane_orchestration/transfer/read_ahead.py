"""Reads a listing in a thread of its own, ahead of the caller: the store works meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import copy_context
from itertools import islice
from queue import Queue
from typing import Final, TypeVar

T = TypeVar("T")

#: Rows that are handed over at once, and how many such pages may wait for the caller.
PAGE_ROWS: Final = 1000
_PAGES_AHEAD: Final = 2


def read_ahead(rows: Iterator[T]) -> Iterator[T]:
    """The same rows, or the same error. Reads ahead only once the first page is used up."""
    first = 0
    for row in islice(rows, PAGE_ROWS):
        first += 1
        yield row
    if first < PAGE_ROWS:
        return
    pages: Queue[list[T] | BaseException] = Queue(_PAGES_AHEAD)
    is_over = threading.Event()

    def fetch() -> None:
        try:
            while not is_over.is_set():
                page = list(islice(rows, PAGE_ROWS))
                pages.put(page)
                if len(page) < PAGE_ROWS:
                    return
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            pages.put(error)

    # A daemon: the interpreter must be able to end while a store does not respond.
    threading.Thread(target=copy_context().run, args=(fetch,), name="listing", daemon=True).start()
    try:
        while True:
            page = pages.get()
            if isinstance(page, BaseException):
                raise page
            yield from page
            if len(page) < PAGE_ROWS:
                return
    finally:
        is_over.set()
        while not pages.empty():
            pages.get_nowait()  # The thread may wait for room.
