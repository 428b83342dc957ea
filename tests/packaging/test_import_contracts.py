"""Each import contract of setup.cfg breaks when it should: a rule that cannot fail is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

#: Contract -> one import that it forbids: module, statement.
VIOLATIONS = {
    "layers": ("skyplane_orchestration.model.plan", "import skyplane_orchestration.grids"),
    "planner-layers": (
        "skyplane_orchestration.planner.formulation",
        "import skyplane_orchestration.planner.search",
    ),
    "gateway-layers": ("skyplane_gateway.stores.options", "import skyplane_gateway.protocol"),
    "airflow-apart": ("skyplane_orchestration.operators.probe", "import dagster"),
    "dagster-apart": ("skyplane_orchestration.dagster.probe", "import airflow"),
    "cli-apart": (
        "skyplane_orchestration.cli.probe",
        "import skyplane_orchestration.operators.probe",
    ),
    "gateway-alone": ("skyplane_gateway.stores.options", "import skyplane_orchestration.units"),
    "public-face": (
        "skyplane_orchestration.grids",
        "from skyplane_gateway.stores import options",
    ),
    "airflow": ("skyplane_orchestration.grids", "from airflow.sdk import Variable"),
    "dagster": ("skyplane_orchestration.grids", "import dagster"),
    "clouds": ("skyplane_gateway.stores.options", "from google.cloud import storage"),
    "solver": ("skyplane_orchestration.grids", "from scipy.optimize import milp"),
    "drawing": ("skyplane_orchestration.planner.check", "from matplotlib.figure import Figure"),
    "ssh": ("skyplane_orchestration.grids", "from paramiko import SSHClient"),
    "sans-io": ("skyplane_gateway.protocol.probe", "from time import monotonic"),
    "fakes-alone": ("strict_clouds.usage", "import tests.manual_clock"),
}
#: Folders of the packages.
ROOTS = ("src", "gateway", "grids", "tests/strict_clouds")
#: What a violation breaks besides its own contract, because both forbid it.
ALSO = {"dagster-apart": {"airflow"}, "airflow-apart": {"dagster"}, "cli-apart": {"layers"}}


def contracts(repository: Path) -> dict[str, str]:
    """Name of each contract by its identifier."""
    configuration = ConfigParser()
    configuration.read(repository / "setup.cfg")
    return {
        section.removeprefix("importlinter:contract:"): configuration[section]["name"]
        for section in configuration.sections()
        if section.startswith("importlinter:contract:")
    }


def broken_contracts(tree: Path) -> set[str]:
    """Names of the contracts that the packages below `tree` break."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=tree,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(tree / name) for name in ROOTS),
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "Contracts:" in done.stdout, done.stdout + done.stderr
    return set(re.findall(r"^(.+) BROKEN", done.stdout, flags=re.MULTILINE))


@pytest.fixture
def tree(repository: Path, tmp_path: Path) -> Path:
    """A copy of the packages and of the contracts, to be spoiled."""
    leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "Dockerfile")
    for name in ROOTS:
        shutil.copytree(repository / name, tmp_path / name, ignore=leave_out)
    shutil.copyfile(repository / "setup.cfg", tmp_path / "setup.cfg")
    return tmp_path


def add_import(tree: Path, module: str, statement: str) -> None:
    package = module.partition(".")[0]
    (root,) = (tree / name for name in ROOTS if (tree / name / package).is_dir())
    path = root.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    with path.open("a") as file:
        file.write(f"\n{statement}\n")


def test_every_contract_has_its_violation(repository: Path) -> None:
    assert contracts(repository).keys() == VIOLATIONS.keys()


@pytest.mark.parametrize("broken", [set(ALSO), VIOLATIONS.keys() - ALSO.keys()], ids=len)
def test_contracts_break(repository: Path, tree: Path, broken: set[str]) -> None:
    """Several at a time, none of which breaks the contract of another."""
    names = contracts(repository)
    add_import(tree, "skyplane_orchestration.operators.probe", "")
    for contract in broken:
        add_import(tree, *VIOLATIONS[contract])
    expected = broken.union(*(ALSO.get(contract, set()) for contract in broken))
    assert broken_contracts(tree) == {names[contract] for contract in expected}


def test_a_module_that_no_layer_names_breaks_the_layers(repository: Path, tree: Path) -> None:
    add_import(tree, "skyplane_orchestration.probe", "")
    assert broken_contracts(tree) == {contracts(repository)["layers"]}


def test_a_permitted_import_breaks_nothing(tree: Path) -> None:
    add_import(tree, "skyplane_orchestration.operators.probe", "from airflow.sdk import Variable")
    add_import(
        tree, "skyplane_orchestration.operators.probe", "import skyplane_gateway.common.errors"
    )
    add_import(tree, "skyplane_orchestration.dagster.probe", "import dagster")
    assert broken_contracts(tree) == set()
