"""The releases of Airflow and Dagster that the package supports, and their suites."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
REPOSITORY: Final = HERE.parents[1]
REQUIREMENTS: Final = HERE / "requirements.txt"
CONSTRAINTS: Final = REPOSITORY / "constraints"
#: The fakes, which are a distribution of their own.
STRICT_CLOUDS: Final = REPOSITORY / "tests" / "strict_clouds"

#: The extras that the suites use beside that of their orchestrator.
_COMMON_EXTRAS: Final = ("aws", "azure", "gateway", "gcp", "gcs", "plots", "ssh")
_AIRFLOW_SUITES: Final = (
    "tests/operators",
    "tests/hooks",
    "tests/triggers",
    "tests/links",
    "tests/plugins",
    "tests/test_provider_info.py",
    "tests/example_dags/test_dag_files.py",
    "tests/e2e/test_airflow_runs.py",
    "tests/e2e/test_example_dags.py",
)
#: For the sensor of an example, and for the events that the scenarios emit.
_PROVIDERS: Final = ("apache-airflow-providers-amazon", "apache-airflow-providers-openlineage>=2.3")
#: Their releases are those of Dagster.
_DAGSTER_PROGRAMS: Final = ("dagster-webserver", "dagster-dg-cli", "create-dagster")
_DAGSTER_SUITES: Final = (
    "tests/dagster",
    "tests/example_dags/test_dagster_files.py",
    "tests/e2e/test_dagster_runs.py",
    "tests/e2e/test_dagster_examples.py",
)
#: With the oldest SDKs.
_SDK_SUITES: Final = (
    "tests/gateway/stores/azure",
    "tests/gateway/stores/gcs",
    "tests/gateway/stores/s3",
    "tests/gateway/stores/test_conformance_copies.py",
    "tests/gateway/stores/test_conformance_objects.py",
    "tests/gateway/stores/test_conformance_uploads.py",
    "tests/provision/aws",
    "tests/provision/azure",
    "tests/provision/gcp",
    "tests/provision/kubernetes",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of releases, in an environment of its own.

    Attributes:
        orchestrators: extras of the package, `airflow` or `dagster`.
        pythons: minor versions that the line supports. The first is the default.
        releases: requirements that hold the environment on the line.
        also: packages beside those of the extras.
        is_oldest: takes the oldest release that pyproject.toml allows of each dependency; runs the
            tests of stores and of instances too. No user installs it, so all its pins are one file.
        beside: releases of Airflow whose own constraints the package is installed with, in an
            environment that has this Airflow already.
    """

    name: str
    orchestrators: tuple[str, ...]
    pythons: tuple[str, ...]
    releases: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    is_oldest: bool = False
    beside: tuple[str, ...] = ()

    @property
    def pins(self) -> Path:
        """What the suites need beside the package."""
        return HERE / "pins" / f"{self.name}.txt"

    @property
    def constraints(self) -> Path:
        """What users install, in the releases that the suites run with."""
        return self.pins if self.is_oldest else CONSTRAINTS / f"{self.name}.txt"

    @property
    def extras(self) -> tuple[str, ...]:
        more = ("kubernetes",) if self.is_oldest else ()
        return (*self.orchestrators, *_COMMON_EXTRAS, *more)

    @property
    def suites(self) -> tuple[str, ...]:
        """Files and folders of tests."""
        suites = {"airflow": _AIRFLOW_SUITES, "dagster": _DAGSTER_SUITES}
        chosen = tuple(path for name in self.orchestrators for path in suites[name])
        return (*chosen, *_SDK_SUITES) if self.is_oldest else chosen


LINES: Final = (
    Line(
        "airflow-2.11",
        ("airflow",),
        ("3.12", "3.11"),
        ("apache-airflow==2.11.*",),
        _PROVIDERS,
        beside=("2.11.0", "2.11.2"),
    ),
    Line(
        "airflow-3.1",
        ("airflow",),
        ("3.13", "3.11", "3.12"),
        ("apache-airflow==3.1.*",),
        _PROVIDERS,
        beside=("3.0.6", "3.1.6"),
    ),
    Line(
        "airflow-3.3",
        ("airflow",),
        ("3.13", "3.11", "3.12"),
        ("apache-airflow==3.3.*",),
        _PROVIDERS,
        beside=("3.2.1", "3.3.1"),
    ),
    Line(
        "dagster-1.11",
        ("dagster",),
        ("3.12", "3.11", "3.13"),
        ("dagster==1.11.*",),
        _DAGSTER_PROGRAMS,
    ),
    Line(
        "dagster-1.13",
        ("dagster",),
        ("3.13", "3.11", "3.12"),
        ("dagster==1.13.*",),
        _DAGSTER_PROGRAMS,
    ),
    Line("oldest", ("airflow", "dagster"), ("3.11",), also=_PROVIDERS, is_oldest=True),
)

#: The package without an orchestrator, which is no line of the matrix.
COMMAND_LINE: Final = Line("command-line", (), ("3.11", "3.12", "3.13"))
