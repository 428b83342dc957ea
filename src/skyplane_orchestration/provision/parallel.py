"""Calls at the same time, for verbs that wait for other machines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from skyplane_orchestration.errors import SkyplaneError

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

#: Calls at the same time. A fleet has at most 8 instances per region, by default.
_PARALLEL_CALLS: Final = 16


def in_parallel(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of all calls, in order. Raises the first error after all have ended.

    An interruption waits for the calls that run, and begins no other one.
    """
    if len(calls) <= 1:
        return [call() for call in calls]
    threads = ThreadPoolExecutor(_PARALLEL_CALLS, thread_name_prefix="provision")
    try:
        futures = [threads.submit(call) for call in calls]
        errors = [error for future in futures if (error := future.exception()) is not None]
    finally:
        threads.shutdown(cancel_futures=True)
    for other in errors[1:]:
        if isinstance(other, SkyplaneError):
            log.error("%s", other)
    return [future.result() for future in futures]
