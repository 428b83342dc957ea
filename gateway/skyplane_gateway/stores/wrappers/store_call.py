"""One call to a store: the wait between its attempts."""

from __future__ import annotations

import threading

from skyplane_gateway.common.errors import Cancelled, StoreError
from skyplane_gateway.common.retry import RetryBudget
from skyplane_gateway.stores.wrappers.rate_limiter import Pause


class StoreCall:
    """Blocks its thread between attempts, until `cancelled` is set."""

    def __init__(self, budget: RetryBudget, cancelled: threading.Event, pause: Pause) -> None:
        self.budget = budget
        self.cancelled = cancelled
        self._pause = pause

    def wait_after(self, error: StoreError) -> None:
        """Wait before the next attempt. The limiter waits for `Retry-After`, for all calls.

        Raises:
            StoreError: the error again, when it is permanent or its budget is spent.
            Cancelled: the call was cancelled.
        """
        pause_s = self.budget.next_pause_s(error)
        if self._pause(self.cancelled, pause_s) or self.cancelled.is_set():
            raise Cancelled("the transfer ended while it waited for its store") from error
