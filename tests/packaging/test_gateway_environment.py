"""Every module of the gateway imports where only its lock file is installed."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.packaging.environments import install, make_environment, uv

IMPORT_EACH = """
from importlib import import_module
for name in {names}:
    import_module(name)
    print(name)
"""


def pins_of(path: Path) -> dict[str, str]:
    """Name -> version of a file of `name==version` lines; markers and hashes are left out."""
    lines = (line for line in path.read_text().splitlines() if not line.startswith(" "))
    pins = (re.split(r"[ ;]", line)[0].partition("==") for line in lines)
    return {name: version for name, _, version in pins if version}


@pytest.fixture(scope="module")
def gateway_python(repository: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment made as the image makes its own."""
    python = make_environment(tmp_path_factory.mktemp("gateway") / "venv")
    lock = repository / "gateway" / "skyplane_gateway" / "requirements.lock"
    install(python, "--no-deps", "--require-hashes", "--requirement", lock)
    install(python, "--no-deps", wheel)
    return python


def run(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    # -I: neither the current folder nor PYTHONPATH may lend a module.
    return subprocess.run(
        [python, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=False
    )


def test_every_module_imports(gateway_python: Path, wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        # __main__ starts a gateway on import.
        files = [
            n for n in archive.namelist() if re.match(r"skyplane_gateway/.*(?<!__main__)\.py$", n)
        ]
    names = sorted(n.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for n in files)
    done = run(gateway_python, IMPORT_EACH.format(names=names))
    assert (done.returncode, done.stdout.split()) == (0, names), done.stderr


def imported_at_run_time(source: str) -> set[str]:
    """Top-level names of all imports, those inside functions too, without type-only ones."""
    names = set()
    remaining: list[ast.AST] = [ast.parse(source)]
    while remaining:
        node = remaining.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
        remaining.extend(ast.iter_child_nodes(node))
    return names


def test_late_imports_are_installed_and_packages_of_the_control_plane_are_not(
    gateway_python: Path, repository: Path
) -> None:
    modules = (repository / "gateway" / "skyplane_gateway").rglob("*.py")
    names = sorted(set().union(*(imported_at_run_time(path.read_text()) for path in modules)))
    assert "aiohttp" in names
    others = ["airflow", "dagster", "numpy", "scipy"]
    wanted = names + others
    code = (
        f"from importlib.util import find_spec\nprint(*[n for n in {wanted} if not find_spec(n)])"
    )
    assert run(gateway_python, code).stdout.split() == others


def test_the_installed_packages_are_compatible(gateway_python: Path, repository: Path) -> None:
    """The lock is closed: no package of it asks for one that is missing or of another version."""
    listed = uv("pip", "check", "--python", gateway_python)
    complaints = [
        line
        for line in listed.stderr.splitlines()
        if line.startswith("The package") and "`skyplane-orchestration`" not in line
    ]
    assert not complaints


def test_lock_agrees_with_extras_and_constraints(repository: Path) -> None:
    lock = pins_of(repository / "gateway" / "skyplane_gateway" / "requirements.lock")
    constraints = pins_of(repository / "constraints" / "development.txt")
    assert {name: constraints.get(name) for name in lock} == lock
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needs = [need for extra in ("gateway", "aws", "azure", "gcs") for need in extras[extra]]
    # Gateways open stores, and launch no instances.
    needs = [need for need in needs if not need.startswith("azure-mgmt-")]
    wanted = {re.split(r"[\[<>=~! ]", need)[0] for need in needs}
    assert wanted <= lock.keys()
