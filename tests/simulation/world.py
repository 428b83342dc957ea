"""A world of processes in one thread: one clock, one order of events, no real waiting.

Every process (a gateway, the orchestrator) has an event loop of its own, so that it can
be killed, which runs no clean-up, or stopped and woken, without the others noticing more
than they would of a real one. All loops share the world's clock, which jumps to the next
event. Threads are greenlets: what a thread waits for (a store, an answer, `time.sleep`)
takes virtual time, and exactly one of them runs at any moment. The order of events
depends on the seed and on nothing else.
"""

from __future__ import annotations

import heapq
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]
from tests.simulation.loop import VirtualLoop, set_running

from skyplane_gateway.common.clock import Clock

if TYPE_CHECKING:
    from tests.simulation.network import Network

#: What the wall clock shows when the world begins.
EPOCH_S: Final = 1_800_000_000.0


#: More than any run has: beyond that it runs in circles, perhaps without any time passing.
MOST_EVENTS: Final = 2_000_000
MOST_CPU_S: Final = 120.0
_LOOKED_AT: Final = 4096
_INSPECTED: Final = 4


class Deadlock(AssertionError):
    """Nothing will ever happen again, and what was waited for has not come."""


class Hang(AssertionError):
    """What was waited for has not come within the bound."""


class Process:
    """What lives and dies together: an event loop, threads, a place in the network."""

    def __init__(self, world: World, name: str, host: str) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.loop = VirtualLoop(self)  # type: ignore[abstract]
        self.is_dead = False
        self.is_stopped = False
        self.held: deque[Callable[[], None]] = deque()
        #: Told when the process dies, by whatever serves it.
        self.on_death: list[Callable[[], None]] = []
        #: What the loop was told went wrong: exceptions that nobody has caught.
        self.unhandled: list[str] = []
        #: Called after some of its events: a clock of its own would have more than all others.
        self.look: Callable[[], None] | None = None

    def kill(self) -> None:
        """kill -9: nothing of it ever runs again."""
        if not self.is_dead:
            self.is_dead = True
            self.held.clear()
            for call in self.on_death:
                call()

    def stop(self) -> None:
        """SIGSTOP: its events wait."""
        self.is_stopped = True

    def resume(self) -> None:
        """SIGCONT: what waited happens now, in order."""
        self.is_stopped = False
        held, self.held = self.held, deque()
        for call in held:
            self.world.after(0.0, call, self)


class Thread:
    """A thread of a process, in which blocking takes virtual time."""

    def __init__(self, process: Process, run: Callable[[], None]) -> None:
        self.process = process
        self.is_over = False
        self._body = greenlet(self._run, parent=process.world.hub)
        self._run_body = run

    def _run(self) -> None:
        self._run_body()
        self.is_over = True

    def step(self) -> None:
        """Run until it blocks or ends; called by the world."""
        set_running(None)
        self.process.world.threads[self._body] = self
        self._body.switch()
        if self.is_over:
            del self.process.world.threads[self._body]

    def drop(self) -> None:
        """Unwind it; nothing that it does on the way has an effect any more."""
        if not self._body.dead:
            self._body.throw()


@dataclass
class World:
    """The clock and the queue of events.

    Args:
        seed: decides all that is left to chance.
    """

    seed: int
    now: float = 0.0
    is_over: bool = False
    processes: list[Process] = field(default_factory=list)
    threads: dict[greenlet, Thread] = field(default_factory=dict)
    events: int = 0
    #: What happened, for people; and whose digest tells two runs apart.
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hub = getcurrent()
        self._network: Network | None = None
        self.rng = random.Random(self.seed)
        self.clock = Clock(lambda: self.now, lambda: EPOCH_S + self.now, self.sleep)
        self._queue: list[tuple[float, int, Process | None, Callable[[], None]]] = []
        self._order = 0

    def note(self, text: str) -> None:
        self.log.append(f"{self.now:10.4f} {text}")

    @property
    def network(self) -> Network:
        assert self._network is not None, "this world has no network"
        return self._network

    @network.setter
    def network(self, network: Network) -> None:
        self._network = network

    def process(self, name: str, host: str) -> Process:
        made = Process(self, name, host)
        self.processes.append(made)
        return made

    # -- events

    def after(
        self, delay_s: float, call: Callable[[], None], process: Process | None = None
    ) -> None:
        """Call later; as an event of `process`, so never once that is dead."""
        self.at(self.now + max(0.0, delay_s), call, process)

    def at(self, when: float, call: Callable[[], None], process: Process | None) -> None:
        self._order += 1
        heapq.heappush(self._queue, (when, self._order, process, call))

    def run_until(self, condition: Callable[[], bool], *, within_s: float) -> None:
        """Let events happen until the condition holds.

        Raises:
            Deadlock, Hang: it does not come to hold.
        """
        limit_s, most_events = self.now + within_s, self.events + MOST_EVENTS
        began_s = time.process_time()
        try:
            while not condition():
                if not self._queue:
                    raise Deadlock(f"at {self.now:.3f} s nothing will ever happen again")
                when, _, process, call = heapq.heappop(self._queue)
                if when > limit_s:
                    raise Hang(f"not done within {within_s:g} virtual seconds")
                self.now = max(self.now, when)
                self._happen(process, call)
                if self.events > most_events:
                    raise Hang(f"at {self.now:.3f} s there is no end of events")
                if self.events % _LOOKED_AT == 0 and time.process_time() - began_s > MOST_CPU_S:
                    raise Hang(f"at {self.now:.3f} s it has computed for {MOST_CPU_S:g} s")
        finally:
            set_running(None)

    def run_for(self, seconds: float) -> None:
        """Let events happen for a while."""
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True

        self.after(seconds, end)
        self.run_until(lambda: is_over, within_s=2 * seconds)

    def _happen(self, process: Process | None, call: Callable[[], None]) -> None:
        if process is not None:
            if process.is_dead:
                return
            if process.is_stopped:
                process.held.append(call)
                return
        self.events += 1
        set_running(None if process is None else process.loop)
        call()
        if process is not None and process.look is not None and self.events % _INSPECTED == 0:
            process.look()

    # -- threads

    def start_thread(self, process: Process, run: Callable[[], None]) -> Thread:
        thread = Thread(process, run)
        self.after(0.0, thread.step, process)
        return thread

    @property
    def thread(self) -> Thread:
        """The running thread.

        Raises:
            AssertionError: an event loop runs, which must not block.
        """
        found = self.threads.get(getcurrent())
        assert found is not None, "a call that blocks was made on an event loop"
        return found

    @property
    def is_in_thread(self) -> bool:
        return getcurrent() in self.threads

    def block(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """Have the running thread wait until what `begin` was given is called."""
        if self.is_over:
            raise GreenletExit
        thread = self.thread
        is_woken = False

        def wake() -> None:
            nonlocal is_woken
            if not is_woken:
                is_woken = True
                self.after(0.0, thread.step, thread.process)

        begin(wake)
        self.hub.switch()

    def sleep(self, seconds: float) -> None:
        """What `time.sleep` is to a thread of this world."""
        self.block(lambda wake: self.after(seconds, wake))

    # -- the end

    def close(self) -> None:
        """Drop every process and thread without running it further."""
        self.is_over = True
        self._queue.clear()
        for process in self.processes:
            process.is_dead = True
            process.loop.drop_tasks()
        for thread in tuple(self.threads.values()):
            thread.drop()
        self.threads.clear()
        self._queue.clear()
