"""A store that is opened again with fresh credentials while it is in use.

The orchestrator renews credentials that it sent. It is asked to at three quarters of their life,
before requests fail. The platform's own identity renews itself: a store that is opened again
reads it again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.errors import Cancelled, CredentialsExpired, SkyplaneError
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.wrappers.rate_limiter import Pause

log = logging.getLogger(__name__)

#: How long requests wait for fresh credentials, from the first refusal.
TIMEOUT_S: Final = 300.0

#: Credentials are renewed after this part of their life.
_RENEWED_AT: Final = 0.75

#: Pause between two checks for fresh credentials.
_POLL_S: Final = 0.25
#: Pause between two requests for the platform's own identity.
_PLATFORM_PAUSE_S: Final = 5.0

#: Opens the store with these credentials, or None for the platform's own identity.
Opener = Callable[[Credentials | None], ObjectStore]


class CredentialRenewal:
    """Holds the store that is open. Thread-safe.

    Attributes:
        store: opened with the newest credentials.
        generation: how often credentials were renewed.
    """

    def __init__(
        self,
        open_with: Opener,
        credentials: Credentials | None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        pause: Pause = threading.Event.wait,
    ) -> None:
        self.store = open_with(credentials)
        self.generation = 0
        self._open_with = open_with
        self._credentials = credentials
        self._clock = clock
        self._pause = pause
        self._lock = threading.Lock()
        self._retired: list[ObjectStore] = []
        self._timeout_s = 0.0
        self._refused_since_s = math.inf
        self._refused_generation = -1
        self._platform_asked_s = -math.inf
        self._due_unix_s = self._due_from(credentials)

    def _due_from(self, credentials: Credentials | None) -> float:
        if credentials is None or "expires_at" not in credentials:
            return math.inf
        now = self._clock.wall()
        return now + _RENEWED_AT * (float(credentials["expires_at"]) - now)

    @property
    def is_waiting(self) -> bool:
        """Requests may be waiting for fresh credentials."""
        return self._timeout_s > 0 and self._refused_since_s < math.inf

    @property
    def is_needed(self) -> bool:
        """The orchestrator should send fresh credentials."""
        if self._credentials is None:
            return False
        return self._refused_since_s < math.inf or self._clock.wall() >= self._due_unix_s

    def enable_waiting(self, timeout_s: float = TIMEOUT_S) -> None:
        """From now on the orchestrator reads `is_needed`, so `wait` waits."""
        self._timeout_s = timeout_s

    def replace(self, credentials: Credentials) -> None:
        """Use these from now on. The same credentials as before are tried once more."""
        with self._lock:
            if dict(credentials) != dict(self._credentials or {}):
                self._reopen(credentials)
                self._due_unix_s = self._due_from(credentials)
            elif self._refused_since_s < math.inf:
                # A wrong clock makes good credentials look expired.
                self.generation += 1

    def _reopen(self, credentials: Credentials | None) -> None:
        fresh = self._open_with(credentials)
        # Requests in flight still use the connections of the old store.
        self._retired.append(self.store)
        self.store, self._credentials = fresh, credentials
        self.generation += 1

    def succeeded(self) -> None:
        """The store accepted a request, which may be older than a refusal."""
        if self.generation > self._refused_generation:
            self._refused_since_s = math.inf

    def wait(
        self,
        generation: int,
        error: CredentialsExpired,
        cancelled: threading.Event,
        deadline_s: float,
    ) -> None:
        """Wait until there are credentials newer than `generation`, at most to the deadline.

        Raises:
            CredentialsExpired: the error again; none have come in time.
            Cancelled: the call was cancelled.
        """
        with self._lock:
            if generation == self.generation:
                self._refused_generation = generation
                if self._refused_since_s == math.inf:
                    self._refused_since_s = self._clock.monotonic()
                    log.warning("the credentials have expired: %s", error)
            deadline_s = min(deadline_s, self._refused_since_s + self._timeout_s)
        while generation == self.generation:
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0:
                raise error
            if not self._ask_platform():
                self._pause(cancelled, min(_POLL_S, left_s))
            if cancelled.is_set():
                raise Cancelled("the transfer ended while it waited for credentials") from error

    def _ask_platform(self) -> bool:
        """Open the store with the platform's current identity; False if it could not."""
        with self._lock:
            now_s = self._clock.monotonic()
            if self._credentials is not None or now_s < self._platform_asked_s + _PLATFORM_PAUSE_S:
                return False
            self._platform_asked_s = now_s
            try:
                self._reopen(None)
            except SkyplaneError as error:
                log.warning("the platform gives no fresh credentials: %s", error)
                return False
        return True

    def close(self) -> None:
        """Drop all connections."""
        with self._lock:
            stores, self._retired = (*self._retired, self.store), []
        for store in stores:
            store.close()
