"""The files of a new cloud are whole: they are checked as if they were committed."""

from __future__ import annotations

import ast
import importlib
import inspect
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from docs.add_cloud import main, write

from skyplane_orchestration import provision
from skyplane_orchestration.provision.fleet.machines import Machines
from skyplane_orchestration.provision.gcp import GcpCloud

NAME = "nimbusnimbus"
FOLDER = Path("src/skyplane_orchestration/provision")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    write(NAME, "Nimbus Cloud", root)
    return root


@pytest.fixture
def package(written: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(provision, "__path__", [*provision.__path__, str(written / FOLDER)])
    yield importlib.import_module(f"skyplane_orchestration.provision.{NAME}")
    for module in [one for one in sys.modules if f".provision.{NAME}" in one]:
        del sys.modules[module]


def test_it_has_the_files_that_all_clouds_share(repository: Path, written: Path) -> None:
    shared = set.intersection(
        *(
            {path.name for path in (repository / FOLDER / cloud).glob("*.py")}
            for cloud in ("aws", "gcp", "azure")
        )
    )
    assert {path.name for path in (written / FOLDER / NAME).iterdir()} == shared


def test_ruff_has_nothing_to_say(repository: Path, written: Path) -> None:
    settings = ["--config", str(repository / "pyproject.toml"), str(written)]
    for verb in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *verb, "--no-cache", *settings],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_it_has_all_members_of_a_cloud(package: ModuleType) -> None:
    made = package.NimbusnimbusCloud()
    for name, member in inspect.getmembers(Machines):
        if name.startswith("_"):
            continue
        if not callable(member):
            assert isinstance(getattr(made, name), str | frozenset | None)
            continue
        asked, given = (inspect.signature(getattr(one, name)) for one in (Machines, type(made)))
        assert str(given) == str(asked), name
    assert inspect.signature(GcpCloud.launch) == inspect.signature(type(made).launch)


def test_a_verb_says_what_to_write(package: ModuleType) -> None:
    with pytest.raises(NotImplementedError, match="list the account's regions"):
        package.NimbusnimbusCloud().regions()


def test_it_imports_what_other_clouds_import(repository: Path, written: Path) -> None:
    others = {
        name.replace(f".provision.{cloud}", f".provision.{NAME}")
        for cloud in ("aws", "gcp", "azure")
        for name in imported(repository / FOLDER / cloud)
    }
    assert imported(written / FOLDER / NAME) <= others


def imported(folder: Path) -> set[str]:
    """The modules of ours that the files of a folder import."""
    trees = [ast.parse(path.read_text()) for path in folder.glob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name for name in names if name.startswith("skyplane_")}


def test_it_changes_no_file(
    repository: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        main(["gcp", "--title", "Google", "--root", str(repository)])
    assert "provision/gcp/__init__.py exists" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["Oracle Cloud", "--title", "Oracle", "--root", str(tmp_path)])
    assert "lower-case letters" in capsys.readouterr().err


@pytest.mark.soak
def test_types_and_contracts_hold(repository: Path, tmp_path: Path) -> None:
    for folder in ("src", "gateway", "grids", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(repository / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(repository / "setup.cfg", tmp_path)
    write(NAME, "Nimbus Cloud", tmp_path)
    tools = Path(sys.executable).parent
    for command in (
        [str(tools / "mypy"), str(FOLDER / NAME), f"tests/provision/{NAME}"],
        [str(tools / "lint-imports"), "--config", "setup.cfg", "--no-cache"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
