"""What all runs of one client share."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import MinimizeCost
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.transfer.fleets import Fleets
from skyplane_orchestration.transfer.gateway_credentials import SentCredentials

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid


@dataclass(frozen=True, slots=True)
class StopAt:
    """When a transfer is stopped at the latest, in seconds since 1970, and why."""

    unix_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Who runs, with what, and by which clock; see the arguments of `Client`.

    Args:
        grid: loads the grid on its first call.
        poll_s: longest pause between two polls of a running transfer, in seconds.
        learned_grid: where ended transfers leave the rates of their edges; None: nowhere.
        default_objective: of a job that names none.
        manifest_key: reference of the key that signs manifests; None: they are not signed.
    """

    identity: RunIdentity
    fleets: Fleets
    sent: SentCredentials
    clock: Clock
    rng: random.Random
    grid: Callable[[], Grid]
    poll_s: float
    default_objective: MinimizeCost
    stop_at: StopAt | None = None
    learned_grid: str | None = None
    manifest_key: str | None = None

    @property
    def credentials(self) -> CredentialSources:
        """The whole ones, which stay on this machine."""
        return self.sent.sources

    def stopping_by(self, deadline_unix_s: float | None) -> ClientContext:
        """This context for a task that has a deadline: the earlier time to stop counts."""
        own = self.stop_at
        if deadline_unix_s is None or (own is not None and own.unix_s <= deadline_unix_s):
            return self
        reason = "the time of its task is over" if own is None else own.reason
        return replace(self, stop_at=StopAt(deadline_unix_s, reason))
