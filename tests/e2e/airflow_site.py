"""A real Airflow 3: scheduler, execution API and a database, as processes.

Tasks run as in production: each in a process with a supervisor, retried by the scheduler. The
tests read the database, since only it has the process ids of tasks.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.e2e.conftest import Home
from tests.e2e.held_store import wait_for
from tests.ports import free_port

#: The scheduler takes a task for dead after this time without a heartbeat.
_HEARTBEAT_TIMEOUT_S: Final = 5

#: What runs tasks, and no more: the DAGs are written to the database once.
TASKS_ONLY: Final = (
    ("api-server", "--apps", "execution", "--workers", "1"),
    ("scheduler", "--skip-serve-logs"),
)
#: All services, as in production; the API server serves the pages and the REST API too.
ALL_SERVICES: Final = (
    ("api-server", "--workers", "1"),
    ("scheduler", "--skip-serve-logs"),
    ("triggerer", "--skip-serve-logs"),
    ("dag-processor",),
)

_RUN_COMMANDS: Final = """
import sys
from airflow.cli import cli_parser
for line in sys.argv[1:]:
    arguments = cli_parser.get_parser().parse_args(line.split())
    arguments.func(arguments)
"""


@dataclass(frozen=True)
class AirflowSite:
    """See the module.

    Attributes:
        home: whose fleets the tasks bring up.
        environment: of all its processes.
        logs: a folder with a log of each service.
        processes: its services by name.
    """

    home: Home
    environment: Mapping[str, str]
    logs: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.environment['AIRFLOW__API__PORT']}"

    def start_service(self, name: str, *options: str) -> None:
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "airflow", name, *options],
                env=self.environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill_service(self, name: str) -> None:
        """SIGKILL to the service and all that it has started: workers, tasks, trigger runners."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @property
    def _airflow_home(self) -> Path:
        return Path(self.environment["AIRFLOW_HOME"])

    def run_commands(self, *commands: str) -> None:
        """Run commands of Airflow in one process, since importing Airflow takes seconds."""
        done = subprocess.run(
            [sys.executable, "-c", _RUN_COMMANDS, *commands],
            env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]

    def start(self, dag_id: str) -> Run:
        """Begin a run of a DAG."""
        self.run_commands(f"dags trigger {dag_id} --run-id run")
        return Run(self, dag_id)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        address = f"file:{self._airflow_home / 'airflow.db'}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=30)) as database:
            return database.execute(query, values).fetchall()

    def states_of(self, dag_id: str, task: str) -> list[str]:
        """States of a mapped task's instances."""
        query = "select state from task_instance where dag_id = ? and task_id = ?"
        return [str(state) for (state,) in self.rows(query, dag_id, task)]

    def log_of(self, dag_id: str, task: str, attempt: int, map_index: int | None = None) -> str:
        """What a try of a task has logged so far, one event to a line."""
        place = self._airflow_home / "logs" / f"dag_id={dag_id}" / "run_id=run"
        place = place / f"task_id={task}"
        if map_index is not None:
            place = place / f"map_index={map_index}"
        path = place / f"attempt={attempt}.log"
        if not path.exists():
            return ""
        lines = path.read_text().splitlines()
        return "\n".join(str(json.loads(line).get("event")) for line in lines if line[:1] == "{")


@dataclass(frozen=True)
class Run:
    """One run of a DAG; tasks are those of its group `move`."""

    site: AirflowSite
    dag_id: str

    def state(self) -> str:
        ((state,),) = self.site.rows("select state from dag_run where dag_id = ?", self.dag_id)
        return str(state)

    def task_states(self) -> dict[str, tuple[str, int]]:
        """Task -> state and number of the try."""
        rows = self.site.rows(
            "select task_id, state, try_number from task_instance where dag_id = ?", self.dag_id
        )
        return {task.removeprefix("move."): (state, number) for task, state, number in rows}

    def returned(self, task: str) -> Any:
        ((value,),) = self.site.rows(
            "select value from xcom where dag_id = ? and task_id = ? and key = 'return_value'",
            self.dag_id, f"move.{task}",
        )  # fmt: skip
        return json.loads(value)

    def log(self, task: str, attempt: int) -> str:
        return self.site.log_of(self.dag_id, f"move.{task}", attempt)

    def wait_for_log(self, task: str, attempt: int, words: str) -> None:
        wait_for(
            lambda: words in self.log(task, attempt), f"{words!r} from try {attempt} of {task}"
        )

    def process_of(self, task: str, attempt: int) -> int:
        """Process id of a try that runs; waits until it does."""

        def look() -> int:
            rows = self.site.rows(
                "select pid from task_instance where dag_id = ? and task_id = ? "
                "and try_number = ? and state = 'running'",
                self.dag_id, f"move.{task}", attempt,
            )  # fmt: skip
            return int(rows[0][0] or 0) if rows else 0

        return wait_for(look, f"try {attempt} of {task}")

    def kill_task(self, task: str, attempt: int) -> None:
        """SIGKILL to the task's process alone: its supervisor reports it."""
        os.kill(self.process_of(task, attempt), signal.SIGKILL)

    def kill_worker(self, task: str, attempt: int) -> None:
        """SIGKILL to the process and its supervisor: nobody is left who could report it."""
        self._signal_worker(task, attempt, signal.SIGKILL)

    def freeze_worker(self, task: str, attempt: int) -> tuple[int, int]:
        """SIGSTOP to both: for the scheduler as if they had died. Their process ids."""
        return self._signal_worker(task, attempt, signal.SIGSTOP)

    def _signal_worker(self, task: str, attempt: int, kind: signal.Signals) -> tuple[int, int]:
        pid = self.process_of(task, attempt)
        stat = Path(f"/proc/{pid}/stat").read_text()
        supervisor = int(stat.rpartition(")")[2].split()[1])
        assert b"airflow worker" in Path(f"/proc/{supervisor}/cmdline").read_bytes()
        for each in (supervisor, pid):
            os.kill(each, kind)
        return supervisor, pid

    def wait_for_end(self) -> str:
        return wait_for(
            lambda: state if (state := self.state()) in ("success", "failed") else "",
            f"the end of {self.dag_id}: {self.task_states()}",
        )


@contextmanager
def airflow_site(
    directory: Path,
    dags: Path,
    extra: Mapping[str, str],
    services: Sequence[Sequence[str]] = TASKS_ONLY,
) -> Iterator[AirflowSite]:
    """A running Airflow with the DAGs of that folder, ended with the block.

    Args:
        extra: environment variables for the tasks.
        services: commands of Airflow.
    """
    home = Home(directory / "home")
    for name in ("run", "config"):
        (home.directory / name).mkdir(parents=True, mode=0o700)
    port = free_port()
    environment = {
        **{name: value for name, value in home.environment.items() if "AIRFLOW" not in name},
        **_settings(directory / "airflow", dags, port),
        **extra,
    }
    site = AirflowSite(home, environment, directory)
    site.run_commands("db migrate", "dags reserialize")
    try:
        for name, *options in services:
            site.start_service(name, *options)
        yield site
    finally:
        for name in tuple(site.processes):
            site.kill_service(name)
        for pid in home.gateways():
            os.kill(pid, signal.SIGKILL)


def _settings(airflow_home: Path, dags: Path, port: int) -> dict[str, str]:
    return {
        "AIRFLOW_HOME": str(airflow_home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API_AUTH__JWT_SECRET": os.urandom(32).hex(),
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(_HEARTBEAT_TIMEOUT_S),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "NO_COLOR": "1",
    }
