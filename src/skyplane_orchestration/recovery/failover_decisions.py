"""The state machine that decides who leads a transfer when its lead stops answering.

No clock, no socket, no thread: an event goes in, the next action comes out. `Monitor` runs it
against the control API, the tests against made-up events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Polls without an answer after which the lead counts as lost.
SILENT_POLLS: Final = 5

#: Most failovers of one call.
MAX_FAILOVERS: Final = 3


@dataclass(frozen=True, slots=True)
class Tenure:
    """A lead and the epoch in which it leads."""

    lead: str
    epoch: int


@dataclass(frozen=True, slots=True)
class FleetView:
    """What the sources and sinks of a fleet report about one transfer.

    Attributes:
        sources, sinks: nodes that answer, in the fleet's order.
        newest: the newest tenure that a gateway reports as lead, running or ended.
        running: the newest tenure that still runs.
        next_epoch: the lowest epoch that a new lead may use.
        unacknowledged: `newest`, if it succeeded and no orchestrator has fetched that yet.
        newest_epoch: the newest epoch that any gateway has seen.
        acknowledged_epoch: the newest epoch whose success an orchestrator has fetched; the
            gateways were released after that.
        has_other_routes: than the document of the fleet that the caller has.
    """

    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    newest: Tenure | None
    running: Tenure | None
    next_epoch: int
    unacknowledged: Tenure | None = None
    newest_epoch: int = 0
    acknowledged_epoch: int = 0
    has_other_routes: bool = False

    @property
    def to_join(self) -> Tenure | None:
        """The tenure that a new submit of the transfer joins, if any."""
        return self.running or self.unacknowledged


@dataclass(frozen=True, slots=True)
class _Because:
    """What has a reason, in words."""

    reason: str


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Answered:
    """The lead answered a poll.

    `epoch` is newer when another orchestrator submitted there; `has_progress`: an object has
    ended or bytes were delivered in it.
    """

    epoch: int
    has_progress: bool


class Silent(_Because):
    """The lead did not answer a poll."""


@dataclass(frozen=True, slots=True)
class Displaced:
    """The lead answered, but leads no longer: it was restarted, or its epoch is over.

    `has_other_plan`: the caller has ended the epoch, and the fleet has the routes of another plan.
    """

    reason: str
    has_other_plan: bool = False


class Broken(_Because):
    """The lead gave up because it lost the other gateways."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """The sources and sinks of the fleet were asked."""

    view: FleetView


@dataclass(frozen=True, slots=True)
class Submitted:
    """A gateway leads the transfer now, or did already."""

    tenure: Tenure


class SubmitFailed(_Because):
    """The submit failed: a gateway did not answer, or paths are broken."""


@dataclass(frozen=True, slots=True)
class FleetRestored:
    """The fleet is up again."""


class RestoreFailed(_Because):
    """The fleet did not come up again."""


Event = (
    Answered
    | Silent
    | Displaced
    | Broken
    | Inspected
    | Submitted
    | SubmitFailed
    | FleetRestored
    | RestoreFailed
)


# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class Poll:
    """Wait for the usual pause, then ask this lead for its status."""

    tenure: Tenure


@dataclass(frozen=True, slots=True)
class Inspect:
    """Ask all sources and sinks of the fleet what they know."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Attach these gateways, then submit to the lead in its epoch."""

    tenure: Tenure
    sources: tuple[str, ...]
    sinks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestoreFleet:
    """Bring the same fleet up again: adopt living gateways, start missing ones.

    This also finds gateways that another orchestrator has started meanwhile.
    """


class GiveUp(_Because):
    """End with a failure that has this reason."""


@dataclass(frozen=True, slots=True)
class EndWell:
    """End with the success of this epoch.

    Another orchestrator has fetched its result; no gateway has it any more.
    """

    epoch: int


Action = Poll | Inspect | Submit | RestoreFleet | GiveUp | EndWell


class Failover:
    """Follows one transfer from lead to lead.

    The fleet is brought up again once; and once before that, to find a lead that another
    orchestrator has submitted to. Between two failovers there must be progress. The move to
    another plan is no failover.
    """

    def __init__(self, tenure: Tenure) -> None:
        self.tenure = tenure
        self.failovers = 0
        self._may_restore = True
        self._may_search = True
        self._is_searching = False
        #: The lead has not failed: it was stopped for another plan.
        self._is_moving = False
        #: The newest epoch that is known to have succeeded.
        self._acknowledged_epoch = 0
        self._silent = 0
        self._reason = ""
        #: The current lead began by a failover and has made no progress yet.
        self._is_idle = False

    def on(self, event: Event) -> Action:
        """The next action after this event."""
        match event:
            case Answered(epoch, has_progress):
                if epoch > self.tenure.epoch:
                    return self._follow(Tenure(self.tenure.lead, epoch))
                self._silent = 0
                self._is_idle = self._is_idle and not has_progress
                return Poll(self.tenure)
            case Silent(reason):
                self._silent += 1
                self._reason = f"the lead {self.tenure.lead} is lost: {reason}"
                return Inspect() if self._silent >= SILENT_POLLS else Poll(self.tenure)
            case Displaced(reason, has_other_plan):
                self._is_moving = has_other_plan
                self._reason = f"{self.tenure.lead} leads the transfer no more: {reason}"
                return Inspect()
            case Broken(reason):
                self._reason = reason
                return self._restore()
            case Inspected(view):
                return self._inspected(view)
            case Submitted(tenure):
                return self._follow(tenure)
            case SubmitFailed(reason):
                self._reason = reason
                self._is_idle = False  # This lead never began.
                return self._restore() if self._may_restore else Inspect()
            case FleetRestored():
                self._may_search = self._is_searching = False
                return Inspect()
            case RestoreFailed(reason):
                if self._is_searching:
                    self._is_searching = False
                    return Inspect()
                return GiveUp(f"{self._reason}. The fleet cannot be brought up again: {reason}")

    def _follow(self, tenure: Tenure) -> Poll:
        self.tenure = tenure
        self._silent = 0
        self._is_moving = False
        return Poll(tenure)

    def _inspected(self, view: FleetView) -> Action:
        if view.newest is not None and view.newest.epoch > self.tenure.epoch:
            return self._follow(view.newest)
        if view.running == self.tenure:
            return self._follow(self.tenure)
        self._acknowledged_epoch = max(self._acknowledged_epoch, view.acknowledged_epoch)
        has_ended = self._acknowledged_epoch >= self.tenure.epoch
        if self._may_search and (has_ended or view.newest_epoch > self.tenure.epoch):
            self._may_search, self._is_searching = False, True
            return RestoreFleet()
        if has_ended:
            if view.newest == Tenure(self.tenure.lead, self._acknowledged_epoch):
                return self._follow(view.newest)
            return EndWell(self._acknowledged_epoch)
        if not view.sources or not view.sinks:
            return self._restore()
        if self._is_moving:
            self._is_moving = False
        elif refusal := self._exhausted():
            return GiveUp(f"{self._reason}. {refusal}")
        else:
            self.failovers += 1
            self._is_idle = True
        # Another source than the lost lead, if there is one.
        lead = next((node for node in view.sources if node != self.tenure.lead), view.sources[0])
        tenure = Tenure(lead, max(view.next_epoch, self.tenure.epoch + 1))
        return Submit(tenure, view.sources, view.sinks)

    def _exhausted(self) -> str:
        """Why there is no further failover; empty when there may be one."""
        if self.failovers >= MAX_FAILOVERS:
            return f"There were {self.failovers} failovers already"
        return "The last failover brought no progress" if self._is_idle else ""

    def _restore(self) -> Action:
        refusal = self._exhausted()
        if refusal or not self._may_restore:
            why = refusal or "No other gateway can lead it"
            return GiveUp(f"{self._reason}. {why}" if self._reason else why)
        self._may_restore = False
        return RestoreFleet()
