"""How often a small job waits for answers: requests that need no other's answer go side by side.

A proxy before each store holds the requests until no more come, and then lets all pass at once.
That is one wait. A store that answers in 100 ms makes a job of 7 waits 0.7 s long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.e2e.pairs import REGIONS, Pair, Run, runner
from tests.e2e.places import UNAVAILABLE, Place, emulated
from tests.faults.http_proxy import running
from tests.faults.http_rules import Rule, Schedule

if TYPE_CHECKING:
    from tests.e2e.conftest import Home

pytestmark = pytest.mark.e2e

#: Requests that are sent side by side come within so many seconds, unless the machine is busy.
_QUIET_S: Final = 0.3
#: A busy machine may only raise the number of waits, so the lowest of some runs counts.
_RUNS: Final = 3

KINDS: Final = ("s3", "gcs", "azure", "file")
#: The checks of both ends, with the listing of the source.
FIRST: Final = 1
#: Of the object at the source.
READ: Final = 1
#: The listing of the destination beside the journal; the object; the end of the journal; its
#: removal. A store whose checksums are not trusted is read again.
WRITE: Final = {"s3": 5, "gcs": 4, "azure": 5}
#: The checks with the listing of the source; the listing of the destination. Beside them the size
#: of the manifest's pointer, and the pointer; then the rows.
NOTHING_TO_DO: Final = 3


class Turns(Schedule):
    """Lets requests pass in turns; `count` is the number of turns that had any."""

    def __init__(self) -> None:
        super().__init__([])
        self.count = 0
        self._held: list[threading.Event] = []
        self._arrived_s = 0.0
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def due(self, method: str, target: str, headers: Sequence[tuple[str, str]] = ()) -> Rule | None:
        may_pass = threading.Event()
        with self._lock:
            self._held.append(may_pass)
            self._arrived_s = time.monotonic()
        may_pass.wait()
        return None

    def run(self) -> None:
        while not self._is_over.wait(0.01):
            with self._lock:
                if not self._held or time.monotonic() - self._arrived_s < _QUIET_S:
                    continue
                held, self._held = self._held, []
            self.count += 1
            for one in held:
                one.set()

    def end(self) -> None:
        self._is_over.set()


@contextmanager
def in_turns(pair: tuple[Place, Place]) -> Iterator[tuple[Turns, Place, Place]]:
    """Both places as the command reaches them: by way of one `Turns`."""
    turns = Turns()
    with ExitStack() as stack:
        behind: dict[str, str] = {}
        for place in pair:
            if place.endpoint and place.endpoint not in behind:
                proxy = stack.enter_context(running(place.endpoint))
                proxy.schedule = turns
                behind[place.endpoint] = proxy.url
        thread = threading.Thread(target=turns.run, daemon=True)
        thread.start()
        stack.callback(thread.join, 10)
        stack.callback(turns.end)
        source, destination = (
            replace(place, endpoint=behind.get(place.endpoint, "")) for place in pair
        )
        yield turns, source, destination


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    try:
        with emulated(tmp_path_factory.mktemp("waits"), "waits") as made:
            yield made
    except UNAVAILABLE as error:
        pytest.skip(str(error))


@pytest.fixture
def run(home: Home, places: dict[str, Place], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    return runner(home, places, monkeypatch, capsys)


def fewest(places: dict[str, Place], ends: tuple[str, str], most: int, run: Run, verb: str) -> int:
    """Waits of the command for one object, of the first run with few enough or else the least."""
    found = []
    for _ in range(_RUNS):
        source, destination = places[ends[0]], places[ends[1]]
        pair = Pair(source, destination)
        pair.write("one", b"x" * 1024)
        with in_turns((source, destination)) as (turns, here, there):
            pair.ends = here, there
            arguments = _without_regions_of_s3(pair.arguments)
            if verb == "sync":
                run("sync", *arguments)
                turns.count = 0
            result = run(verb, *arguments, *(["-r"] if verb == "cp" else []))
            assert result["objects"] == 1
            found.append(turns.count)
        pair.close()
        if found[-1] <= most:
            break
    return min(found)


def _without_regions_of_s3(arguments: list[str]) -> list[str]:
    """A service tells its region; a given one is tried."""
    s3 = REGIONS["s3"]
    left = (one for pair in pairwise([*arguments, ""]) if s3 not in pair for one in pair[:1])
    return list(left)


def waits_of(source: str, destination: str) -> int:
    """The most waits of a copy of one object. Files need no request."""
    if (source, destination) == ("file", "file"):
        return 0
    return FIRST + (READ if source != "file" else 0) + WRITE.get(destination, 0)


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        pytest.param(*ends, marks=() if ends == ("s3", "s3") else pytest.mark.long)
        for ends in product(KINDS, KINDS)
    ],
)
def test_one_object_waits_for_few_answers(
    source: str, destination: str, places: dict[str, Place], run: Run
) -> None:
    most = waits_of(source, destination)
    assert fewest(places, (source, destination), most, run, "cp") <= most


@pytest.mark.parametrize(
    ("source", "destination"), [("s3", "s3"), pytest.param("gcs", "azure", marks=pytest.mark.long)]
)
def test_a_job_with_nothing_to_do_waits_for_three(
    source: str, destination: str, places: dict[str, Place], run: Run
) -> None:
    found = fewest(places, (source, destination), NOTHING_TO_DO, run, "sync")
    assert found <= NOTHING_TO_DO
