"""Decides when gateways are asked whether they need fresh credentials."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.status import TransferStatus

log = logging.getLogger(__name__)

#: Seconds between two checks of all gateways. Each poll tells what the lead's gateway needs.
_CHECK_INTERVAL_S: Final = 30.0


class CredentialRenewal:
    """Renews credentials in the course of polling."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checked_s = clock.monotonic()
        self._was_needed = False

    def poll(self, status: TransferStatus, renew: Callable[[], None]) -> None:
        """Renew when the lead begins to ask for credentials, and at intervals."""
        is_new = bool(status.needs_credentials) and not self._was_needed
        self._was_needed = bool(status.needs_credentials)
        if not is_new and self._clock.monotonic() - self._checked_s < _CHECK_INTERVAL_S:
            return
        self._checked_s = self._clock.monotonic()
        try:
            renew()
        except SkyplaneError as error:
            log.warning("no fresh credentials for the gateways: %s", error)
        except Exception:  # An orchestrator's resolver may raise anything; the next call may work.
            log.exception("no fresh credentials for the gateways")
