"""When the ends of a transfer are looked at for credentials that need to be renewed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.status import TransferStatus

log = logging.getLogger(__name__)

#: Every so often all ends are looked at. The lead's own gateway says at every poll.
_LOOK_S: Final = 30.0


class RenewalWatch:
    """Decides at every poll whether to look.

    Args:
        renew: looks at the ends and hands fresh credentials to those that need them; raises
            SkyplaneError.
        now: seconds.
    """

    def __init__(self, renew: Callable[[], None], now: Callable[[], float]) -> None:
        self._renew = renew
        self._now = now
        self._looked_s = now()
        self._was_needed = False

    def poll(self, status: TransferStatus) -> None:
        """Look at once where the lead begins to ask for credentials, else now and then."""
        is_new = bool(status.needs_credentials) and not self._was_needed
        self._was_needed = bool(status.needs_credentials)
        if not is_new and self._now() - self._looked_s < _LOOK_S:
            return
        self._looked_s = self._now()
        try:
            self._renew()
        except SkyplaneError as error:
            log.warning("there are no fresh credentials to hand over: %s", error)
        except Exception:  # It comes from where the orchestrator keeps them; the next may not.
            log.exception("fresh credentials cannot be had now")
