"""`dagster dev` with runs that are terminated at every gap between steps, as rows of expectations.

    python -m tests.matrix dagster-1.13 --module tests.e2e_dagster

The webserver and the daemon are real. Runs are launched, terminated and launched again by GraphQL;
the tick of the cleanup sensor has to leave nothing, and the re-execution has to go on.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.conftest import Home
from tests.e2e.expectations import Expectations
from tests.e2e.held_store import OBJECTS, HeldStore, held_store, wait_for, write_objects
from tests.e2e.processes import leave_by_sigterm, processes_with
from tests.e2e_dagster.dev import dagster_dev
from tests.e2e_dagster.graphql import GraphQl, RunView
from tests.faults import versitygw

HERE: Final = Path(__file__).parent
SENSOR: Final = "skyplane_cleanup"
STEPS: Final = ("plan", "provision", "transfer", "teardown", "finish")
HALF_WAY: Final = "half_way"
GAP_TRIES: Final = 4
STACKS: Final = "stacks.txt"
ASSETS: Final = tuple(f"after_{moment}" for moment in (*STEPS[:-1], HALF_WAY))


@dataclass(frozen=True)
class Lab:
    home: Home
    graphql: GraphQl
    repository: dict[str, str]
    places: dict[str, HeldStore]
    table: Expectations

    def terminate_after(self, step: str, run_id: str) -> None:
        """Before the next step begins, whose process takes seconds to start."""

        def step_ended() -> bool:
            view = self.graphql.run(run_id)
            return view.is_over or step in view.succeeded

        wait_for(step_ended, f"the end of {step}")
        self.graphql.terminate(run_id)

    def run_terminated_after(self, step: str, asset: str) -> tuple[str, RunView]:
        """A run that ended between a step and the next; a busy machine may miss the gap."""
        for _try in range(GAP_TRIES):
            run_id = self.graphql.launch(self.repository, asset)
            self.terminate_after(step, run_id)
            ended = self.end_of(run_id)
            if ended.succeeded == STEPS[: STEPS.index(step) + 1]:
                break
            self.wait_for_tick(ended.ended_s)
        return run_id, ended

    def end_of(self, run_id: str) -> RunView:
        def look() -> RunView | None:
            view = self.graphql.run(run_id)
            return view if view.is_over else None

        try:
            found = wait_for(look, f"the end of run {run_id}")
        except AssertionError:
            print("\n".join(self.graphql.run(run_id).messages[-20:]))
            print(self.stacks())
            raise
        assert found is not None
        return found

    def stacks(self) -> str:
        """The stacks of all processes that have loaded the code location; they write them."""
        place = self.home.directory / STACKS
        for entry in Path("/proc").glob("[0-9]*/fd/*"):
            # Any other process would end by this signal.
            with suppress(OSError):
                if entry.readlink() == place:
                    os.kill(int(entry.parts[2]), signal.SIGUSR1)
        time.sleep(1.0)
        return place.read_text()

    def wait_for_tick(self, after_s: float) -> str:
        """The status of the first tick of the cleanup sensor that began after that time."""

        def look() -> str:
            ticks = self.graphql.ticks(self.repository, SENSOR)
            later = [tick for tick in ticks if tick.begun_s > after_s and tick.status != "STARTED"]
            return later[-1].status if later else ""

        return wait_for(look, "a tick of the sensor")


@contextmanager
def lab(root: Path, table: Expectations) -> Iterator[Lab]:
    folder = write_objects(root / "objects")
    (root / "server").mkdir()
    home = Home(root / "home")
    for name in ("run", "config", "dagster"):
        (home.directory / name).mkdir(parents=True, mode=0o700)
    with ExitStack() as stack:
        server = stack.enter_context(versitygw.running(root / "server"))
        places = {
            name: stack.enter_context(held_store(server, name.replace("_", "-"), folder))
            for name in ASSETS
        }
        client = places[ASSETS[0]].client
        client.create_bucket(Bucket="source")
        for key in OBJECTS:
            body = (folder / key).read_bytes()
            client.put_object(Bucket="source", Key=f"data/{key}", Body=body)
        for name in set(ASSETS) - {f"after_{HALF_WAY}"}:
            places[name].take()
        environment = {
            **home.environment,
            "E2E_SOURCE": server.url,
            "E2E_STACKS": str(home.directory / STACKS),
            **{f"E2E_{name.upper()}": place.proxy.url for name, place in places.items()},
            "AWS_ACCESS_KEY_ID": server.access_key_id,
            "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
            "DAGSTER_HOME": str(home.directory / "dagster"),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "SKYPLANE_PROCESSES_PER_INSTANCE": "1",
        }
        graphql = stack.enter_context(dagster_dev(root, HERE / "definitions.py", environment))
        repository = wait_for(graphql.repository, "the code location")
        assert repository is not None
        stack.callback(end_gateways, home)
        yield Lab(home, graphql, repository, places, table)


def end_gateways(home: Home) -> None:
    for pid in home.gateways():
        os.kill(pid, signal.SIGKILL)


def terminate_and_go_on(lab: Lab, moment: str) -> None:
    """Terminate after a step or half way, see the sensor's tick, execute again from failure."""
    asset = f"after_{moment}"
    place = lab.places[asset]
    if moment == HALF_WAY:
        first = lab.graphql.launch(lab.repository, asset)
        place.wait_until_half_way()
        place.refuse()
        lab.graphql.terminate(first)
        ended = lab.end_of(first)
    else:
        first, ended = lab.run_terminated_after(moment, asset)
    lab.table.expect("the run is terminated", ended.status, "CANCELED")
    before = STEPS[: STEPS.index("provision" if moment == HALF_WAY else moment) + 1]
    lab.table.expect("no later step has succeeded", ended.succeeded, before)
    lab.table.expect("the sensor's tick succeeds", lab.wait_for_tick(ended.ended_s), "SKIPPED")
    lab.table.expect("the tick leaves no gateway and no directory", lab.home.traces(), [])
    place.take()
    again = lab.end_of(lab.graphql.launch_again(first))
    lab.table.expect("the re-execution succeeds", again.status, "SUCCESS")
    lab.table.expect("it does not repeat what was done", set(again.succeeded) & set(before), set())
    lab.table.expect("the copy is whole", place.is_whole())
    lab.table.expect("no gateway and no directory is left", lab.home.traces(), [])
    lab.table.expect("no upload is open", place.open_uploads(), [])


def main() -> int:
    leave_by_sigterm()
    table = Expectations()
    with tempfile.TemporaryDirectory(prefix="e2e-dagster-") as folder:
        try:
            with lab(Path(folder), table) as made:
                for moment in (*STEPS[:-1], HALF_WAY):
                    with table.scenario(f"terminated after {moment}"):
                        terminate_and_go_on(made, moment)
        except versitygw.Unavailable as error:
            print(f"skipped: {error}")
            return 0
        with table.scenario("at the end"):
            home = f"DAGSTER_HOME={folder}/home/dagster\0"
            wait_for(lambda: not processes_with(home, "environ"), "the end of processes")
            table.expect("no process is left", processes_with(home, "environ"), [])
        if table.failed:
            print((Path(folder) / "dagster.log").read_text(errors="replace")[-6000:])
    return table.close()


if __name__ == "__main__":
    sys.exit(main())
