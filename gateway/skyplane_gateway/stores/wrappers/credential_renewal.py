"""A store whose credentials end: opened anew with fresh ones while it is in use.

The orchestrator renews the credentials that it handed over. It is asked to do so at three
quarters of their life, before anything fails. The platform's own identity renews
itself: a store that is opened anew asks for it again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Final

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.errors import Cancelled, CredentialsExpired, SkyplaneError
from skyplane_gateway.objects import Credentials
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.wrappers.rate_limiter import Pause

log = logging.getLogger(__name__)

#: How long requests wait for fresh credentials, from the first that was refused.
WAITS_S: Final = 300.0

#: The part of their life after which credentials are renewed.
_RENEWED_AT: Final = 0.75

#: Pause between two looks whether there are fresh ones.
_LOOK_S: Final = 0.25
#: Pause between two requests to the platform for its own identity.
_AGAIN_S: Final = 5.0

#: Opens the store with these credentials, or None for the platform's own identity.
Opener = Callable[[Credentials | None], ObjectStore]


class Renewal:
    """Holds the store that is open now. Thread-safe.

    Args:
        open_with: opens the store.
        credentials: the first; None for the platform's own identity.
        clock: its wall time is compared with `expires_at`.
        pause: waits.

    Attributes:
        store: opened with the newest credentials.
        generation: how often they were renewed.
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
        self._waits_s = 0.0
        self._refused_since_s = math.inf
        self._refused_generation = -1
        self._asked_s = -math.inf
        self._due_unix_s = self._due_from(credentials)

    def _due_from(self, credentials: Credentials | None) -> float:
        if credentials is None or "expires_at" not in credentials:
            return math.inf
        now = self._clock.wall()
        return now + _RENEWED_AT * (float(credentials["expires_at"]) - now)

    # -- what others may know

    @property
    def is_refused(self) -> bool:
        """Requests may be waiting for fresh credentials."""
        return self._waits_s > 0 and self._refused_since_s < math.inf

    @property
    def is_needed(self) -> bool:
        """The orchestrator should hand over fresh credentials."""
        if self._credentials is None:
            return False
        return self._refused_since_s < math.inf or self._clock.wall() >= self._due_unix_s

    # -- renewing

    def begin_to_wait(self, within_s: float = WAITS_S) -> None:
        """From now on somebody hears when fresh credentials are needed: `wait` waits."""
        self._waits_s = within_s

    def replace(self, credentials: Credentials) -> None:
        """Ask with these from now on; the same ones as before are asked with once more.

        Raises:
            ConfigurationInvalid: the store cannot be opened with them.
        """
        with self._lock:
            if dict(credentials) != dict(self._credentials or {}):
                self._reopen(credentials)
                self._due_unix_s = self._due_from(credentials)
            elif self._refused_since_s < math.inf:
                # A clock that was wrong makes good ones look expired.
                self.generation += 1

    def _reopen(self, credentials: Credentials | None) -> None:
        fresh = self._open_with(credentials)
        # Requests that are under way still use the connections of the old one.
        self._retired.append(self.store)
        self.store, self._credentials = fresh, credentials
        self.generation += 1

    def accepted(self) -> None:
        """The store has answered a request: perhaps one from before a refusal."""
        if self.generation > self._refused_generation:
            self._refused_since_s = math.inf

    def wait(
        self,
        generation: int,
        error: CredentialsExpired,
        ended: threading.Event,
        until_s: float = math.inf,
    ) -> None:
        """Wait until there are fresh credentials.

        Args:
            generation: of those that were refused.
            ended: set when nobody wants the answer any more.
            until_s: by then it ends.

        Raises:
            CredentialsExpired: the error again; none have come.
            Cancelled: `ended` was set.
        """
        with self._lock:
            if generation == self.generation:
                self._refused_generation = generation
                if self._refused_since_s == math.inf:
                    self._refused_since_s = self._clock.monotonic()
                    log.warning("the credentials are not good any more: %s", error)
            until_s = min(until_s, self._refused_since_s + self._waits_s)
        while generation == self.generation:
            if self._clock.monotonic() >= until_s:
                raise error
            if not self._ask_platform():
                self._pause(ended, min(_LOOK_S, until_s - self._clock.monotonic()))
            if ended.is_set():
                raise Cancelled("the transfer ended while it waited for credentials") from error

    def _ask_platform(self) -> bool:
        """Whether the store was opened with the platform's identity of now."""
        with self._lock:
            now_s = self._clock.monotonic()
            if self._credentials is not None or now_s < self._asked_s + _AGAIN_S:
                return False
            self._asked_s = now_s
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
