"""Who leads when the lead falls silent: decisions alone.

No clock, no socket, no thread: `watch` drives it over the control API, a simulation over
whatever it likes. An event goes in, the next thing to do comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Polls without an answer after which the lead counts as lost.
SILENT_POLLS: Final = 5

#: Times that one call hands a transfer to another epoch.
MAX_FAILOVERS: Final = 3


@dataclass(frozen=True, slots=True)
class Tenure:
    """A lead and the epoch in which it leads."""

    lead: str
    epoch: int


@dataclass(frozen=True, slots=True)
class FleetView:
    """What the ends of a fleet say of one transfer.

    Attributes:
        sources, sinks: nodes that answer, in the fleet's order.
        newest: the newest tenure that any of them knows as lead, running or ended.
        running: the newest of those that run.
        epoch: the lowest epoch that may be begun.
        unclaimed: the newest, if it ended well and nobody has heard of that yet.
        known: the newest epoch that any of them has had anything to do with.
        heard: the newest epoch that ended well, so that somebody has had the ends released.
    """

    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    newest: Tenure | None
    running: Tenure | None
    epoch: int
    unclaimed: Tenure | None = None
    known: int = 0
    heard: int = 0

    @property
    def to_join(self) -> Tenure | None:
        """The tenure that whoever submits the transfer now takes for its own."""
        return self.running or self.unclaimed


# ---------------------------------------------------------------- what happens


@dataclass(frozen=True, slots=True)
class Answered:
    """The lead answers.

    Attributes:
        epoch: the one that it reports of; newer when another orchestrator submitted there.
        has_progress: something has ended or was delivered in that epoch.
    """

    epoch: int
    has_progress: bool


@dataclass(frozen=True, slots=True)
class Silent:
    """The lead does not answer a poll."""

    reason: str


@dataclass(frozen=True, slots=True)
class Displaced:
    """The lead answers, but is not in charge: it was restarted, or its epoch is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The lead gave up because the fleet around it is broken."""

    reason: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The ends of the fleet were asked."""

    view: FleetView


@dataclass(frozen=True, slots=True)
class Taken:
    """A lead has taken the transfer on, or had it already."""

    tenure: Tenure


@dataclass(frozen=True, slots=True)
class Refused:
    """The transfer could not be handed over: an end went silent, or paths are broken."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ensured:
    """The fleet is up again."""


@dataclass(frozen=True, slots=True)
class NotEnsured:
    """The fleet could not be brought up again."""

    reason: str


Event = Answered | Silent | Displaced | Broken | Seen | Taken | Refused | Ensured | NotEnsured


# ---------------------------------------------------------------- what to do


@dataclass(frozen=True, slots=True)
class Poll:
    """Ask this lead how far it is, after the usual pause."""

    tenure: Tenure


@dataclass(frozen=True, slots=True)
class Look:
    """Ask all ends of the fleet what they know."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Attach these ends and ask that source to lead, in that epoch."""

    tenure: Tenure
    sources: tuple[str, ...]
    sinks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnsureFleet:
    """Bring the same fleet up again: living gateways adopted, missing ones started.

    Also how it is learnt where the gateways are that somebody else has started meanwhile.
    """


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End with a failure that says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndedWell:
    """End with the success of that epoch, which another orchestrator has heard of and of
    which nobody is left to ask."""

    epoch: int


Action = Poll | Look | Submit | EnsureFleet | GiveUp | EndedWell


class Failover:
    """Follows one transfer from lead to lead.

    Args:
        tenure: who leads now.
        may_ensure: the fleet may be brought up again, once; and once more, before that, to
            find a lead that another orchestrator has put in charge.
        silent_polls: so many in a row make a lost lead.
        max_failovers: most submits; between two of them there must be progress.
    """

    def __init__(
        self,
        tenure: Tenure,
        *,
        may_ensure: bool = True,
        silent_polls: int = SILENT_POLLS,
        max_failovers: int = MAX_FAILOVERS,
    ) -> None:
        self.tenure = tenure
        self.failovers = 0
        self._may_ensure = may_ensure
        self._may_search = may_ensure
        self._is_searching = False
        #: The newest epoch that is known to have ended well.
        self._heard = 0
        self._silent_polls = silent_polls
        self._max_failovers = max_failovers
        self._silent = 0
        self._reason = ""
        # Began by a fail-over and has nothing to show for it yet.
        self._is_idle = False

    def on(self, event: Event) -> Action:
        """What to do now that this has happened."""
        match event:
            case Answered():
                return self._answered(event)
            case Silent(reason):
                self._silent += 1
                self._reason = f"the lead {self.tenure.lead} is lost: {reason}"
                return Look() if self._silent >= self._silent_polls else Poll(self.tenure)
            case Displaced(reason):
                self._reason = f"{self.tenure.lead} leads the transfer no more: {reason}"
                return Look()
            case Broken(reason):
                self._reason = reason
                return self._ensure()
            case Seen(view):
                return self._seen(view)
            case Taken(tenure):
                return self._follow(tenure)
            case Refused(reason):
                self._reason = reason
                self._is_idle = False  # It never began, so nothing was expected of it.
                return self._ensure() if self._may_ensure else Look()
            case Ensured():
                self._may_search = self._is_searching = False
                return Look()
            case NotEnsured(reason):
                if self._is_searching:
                    self._is_searching = False
                    return Look()
                return GiveUp(f"{self._reason}. The fleet cannot be brought up again: {reason}")

    def _answered(self, event: Answered) -> Poll:
        if event.epoch > self.tenure.epoch:
            return self._follow(Tenure(self.tenure.lead, event.epoch))
        self._silent = 0
        self._is_idle = self._is_idle and not event.has_progress
        return Poll(self.tenure)

    def _follow(self, tenure: Tenure) -> Poll:
        self.tenure = tenure
        self._silent = 0
        return Poll(tenure)

    def _seen(self, view: FleetView) -> Action:
        if view.newest is not None and view.newest.epoch > self.tenure.epoch:
            return self._follow(view.newest)
        if view.running == self.tenure:
            return self._follow(self.tenure)
        self._heard = max(self._heard, view.heard)
        is_over = self._heard >= self.tenure.epoch
        if self._may_search and (is_over or view.known > self.tenure.epoch):
            self._may_search, self._is_searching = False, True
            return EnsureFleet()
        if is_over:
            return self._ended_well(view)
        if not view.sources or not view.sinks:
            return self._ensure()
        refusal = self._exhausted()
        if refusal:
            return GiveUp(f"{self._reason}. {refusal}")
        self.failovers += 1
        self._is_idle = True
        tenure = Tenure(self._next(view.sources), max(view.epoch, self.tenure.epoch + 1))
        return Submit(tenure, view.sources, view.sinks)

    def _ended_well(self, view: FleetView) -> Poll | EndedWell:
        if view.newest == Tenure(self.tenure.lead, self._heard):
            return self._follow(view.newest)
        return EndedWell(self._heard)

    def _next(self, sources: tuple[str, ...]) -> str:
        """Any source but the one that failed, while there is another."""
        return next((node for node in sources if node != self.tenure.lead), sources[0])

    def _exhausted(self) -> str:
        if self.failovers >= self._max_failovers:
            return f"It was handed on {self.failovers} times already"
        return "No progress was made since it was last handed on" if self._is_idle else ""

    def _ensure(self) -> Action:
        refusal = self._exhausted()
        if refusal or not self._may_ensure:
            why = refusal or "No other gateway can go on with it"
            return GiveUp(f"{self._reason}. {why}" if self._reason else why)
        self._may_ensure = False
        return EnsureFleet()
