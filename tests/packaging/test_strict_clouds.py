"""The strict fakes of clouds are a distribution of their own, and need nothing of this project."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.docs.pages import Page
from tests.packaging.environments import make_environment_with_extra

ROOT = "tests/strict_clouds/"
IMPORT_ALL = """
import pkgutil, sys
from importlib import import_module
import strict_clouds
names = [name for _, name, _ in pkgutil.walk_packages(strict_clouds.__path__, "strict_clouds.")]
assert "strict_clouds.arm_machines" in names, names
for name in names:
    import_module(name)
roots = {name.partition(".")[0] for name in sys.modules}
assert not roots & {"skyplane_orchestration", "skyplane_gateway", "skyplane_grids", "tests"}, roots
"""


@pytest.fixture(scope="module")
def python(fakes_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel and its own requirements only."""
    return make_environment_with_extra(tmp_path_factory.mktemp("fakes"), fakes_wheel, "")


def run(python: Path, text: str, folder: Path) -> str:
    done = subprocess.run(
        [python, "-I", "-c", text],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_content_is_the_tracked_files_of_the_package(
    fakes_wheel: Path, tracked_files: list[str], repository: Path
) -> None:
    expected = {
        name.removeprefix(ROOT)
        for name in tracked_files
        if name.startswith(f"{ROOT}strict_clouds/")
    }
    with ZipFile(fakes_wheel) as archive:
        names = archive.namelist()
        (licence,) = (name for name in names if name.endswith(".dist-info/licenses/LICENSE"))
        assert archive.read(licence) == (repository / "LICENSE").read_bytes()
    assert {name for name in names if ".dist-info/" not in name} == expected


@pytest.mark.long
def test_all_modules_are_imported_with_the_own_requirements_only(
    python: Path, tmp_path: Path
) -> None:
    run(python, IMPORT_ALL, tmp_path)


@pytest.mark.long
def test_the_example_of_the_readme_runs(python: Path, tmp_path: Path) -> None:
    (text,) = Page(f"{ROOT}README.md").tested("ec2")
    assert run(python, text, tmp_path) == "hello world\n\n"
