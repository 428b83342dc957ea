"""Fixtures for every test: the repository and the reference data beside it."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import botocore.client
import botocore.loaders
import pytest
import tests.memory_store  # noqa: F401 - the kind `memory`

# A shell starts what runs in its background with interrupts ignored, and so do the children of
# that. Tests of interrupts need them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Thousands of tests and all modules are collected once and then stay. A garbage collector that
# looks through them again and again takes a quarter of the time of the collection.
gc.disable()

# Airflow makes files in its home when it is first imported, by whichever test that is.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-home-")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
# Fleets have the same gateways on every machine.
os.environ["SKYPLANE_PROCESSES_PER_INSTANCE"] = "1"
# Sessions of boto share its descriptions of services, as the product's own do, and clients the
# functions that are made of them: to make the seven hundred of EC2 takes longer than most tests.
botocore.loaders.create_loader = cache(botocore.loaders.create_loader)
_functions: dict[str, dict[str, Any]] = {}
_CREATOR: Final[Any] = botocore.client.ClientCreator
_make_functions: Final = _CREATOR._create_methods


def _shared_functions(creator: Any, model: Any) -> dict[str, Any]:
    if model.service_name not in _functions:
        _functions[model.service_name] = _make_functions(creator, model)
    return dict(_functions[model.service_name])


_CREATOR._create_methods = _shared_functions
# So does matplotlib.
os.environ["MPLCONFIGDIR"] = tempfile.mkdtemp(prefix="matplotlib-")
atexit.register(shutil.rmtree, os.environ["MPLCONFIGDIR"], ignore_errors=True)


#: Files that take more than ten seconds, the longest first, as measured. Workers are handed files
#: in this order, so that none is still at a long one when the rest is done. Those that wait for
#: other processes stand beside those that compute.
LONG_FILES: Final = (
    "e2e/test_airflow_runs.py",
    "e2e/test_airflow_sigkill.py",
    "e2e/test_dagster_runs.py",
    "packaging/test_getting_started.py",
    "e2e/survival/test_chain.py",
    "e2e/test_cloud_instances.py",
    "e2e/cloud_faults/test_cloud_loss.py",
    "e2e/test_cloud_signals.py",
    "provision/fleet/test_cloud_conformance.py",
    "simulation/test_faults.py",
    "provision/test_conformance.py",
    "provision/ssh/test_provisioner.py",
    "e2e/test_ssh_hosts.py",
    "e2e/test_cli_cp.py",
    "docs/test_readme.py",
    "docs/test_tested_blocks.py",
    "docs/test_semantics.py",
    "e2e/test_any_to_any.py",
    "provision/ssh/test_containers.py",
    "e2e/test_comes_along.py",
    "e2e/test_syncs.py",
    "gateway/stores/test_faults_real_servers.py",
    "dagster/test_placeholders.py",
    "storage/test_stated_checksums.py",
    "gateway/stores/test_conformance_objects.py",
    "e2e/test_listings.py",
    "gateway/lead/test_memory.py",
    "packaging/test_extras.py",
    "simulation/test_schedules.py",
    "planner/test_pareto.py",
    "e2e/test_cli_interrupt.py",
    "e2e/test_runs_again.py",
    "provision/aws/test_launch.py",
    "cli/test_bad_input.py",
    "gateway/stores/test_conformance_uploads.py",
    "gateway/stores/test_conformance_listing.py",
    "test_imports.py",
    "packaging/test_gateway_environment.py",
    "test_client.py",
    "simulation/test_found.py",
    "provision/aws/test_checks.py",
    "operators/test_argument_types.py",
    "gateway/service/test_wire.py",
    "provision/local/test_provisioner.py",
    "planner/test_infeasibility.py",
    "planner/multicast/test_random_grids.py",
    "e2e/test_client_faults.py",
    "e2e/test_long_line.py",
    "e2e/test_client_transfers.py",
    "e2e/test_two_at_once.py",
    "planner/test_explain.py",
    "provision/local/test_gateways_e2e.py",
    "planner/search/test_regions.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, the others as they were."""
    here = Path(__file__).parent
    place = {here / name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_dir(repository: Path) -> Path:
    """The folder `shared` beside the repository: measurements to compare with."""
    folder = repository.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the reference data (a folder `shared` beside the repository) is not here")
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which seeds the random schedules had, so that a log tells how to run them again."""
    ran = {
        tuple(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "schedule seeds"
    }
    spans: list[list[int]] = []
    for first, last in sorted(ran):
        if spans and first == spans[-1][1] + 1:
            spans[-1][1] = last
        else:
            spans.append([first, last])
    for first, last in spans:
        terminalreporter.write_line(f"schedules: seeds {first}..{last}")
