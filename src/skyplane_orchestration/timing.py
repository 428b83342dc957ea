"""Where the seconds of a run go: one log line per stage, shown by `-v` and in task logs."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def timed(stage: str) -> Iterator[None]:
    """Log how long the block took, whether or not it raises.

    Args:
        stage: what the block does, such as "teardown: ending the processes".
    """
    began_s = time.monotonic()
    try:
        yield
    finally:
        log.info("%s took %.2f s", stage, time.monotonic() - began_s)
