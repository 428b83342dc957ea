"""Log lines with the duration of each stage of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def timed(stage: str) -> Iterator[None]:
    """Log the duration of the block, also if it raises."""
    began_s = time.monotonic()
    try:
        yield
    finally:
        log.info("%s took %.2f s", stage, time.monotonic() - began_s)
