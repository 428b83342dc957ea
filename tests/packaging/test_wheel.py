"""The wheel holds what git tracks of the three packages, and nothing else."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

ROOTS = (
    "src/skyplane_orchestration/",
    "gateway/skyplane_gateway/",
    "grids/skyplane_grids/",
)


def test_content_is_the_tracked_files_of_the_packages(
    wheel: Path, tracked_files: list[str]
) -> None:
    expected = {
        str(PurePosixPath(*PurePosixPath(name).parts[1:]))
        for name in tracked_files
        if name.startswith(ROOTS)
    }
    with ZipFile(wheel) as archive:
        content = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert content == expected


def test_every_folder_of_modules_is_a_package(tracked_files: list[str]) -> None:
    modules = [PurePosixPath(n) for n in tracked_files if n.startswith(ROOTS) and n.endswith(".py")]
    without = {str(m.parent) for m in modules if m.parent / "__init__.py" not in modules}
    assert not without


def test_entry_points(wheel: Path) -> None:
    points = ConfigParser()
    with ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/entry_points.txt"))
        points.read_string(archive.read(name).decode())
    assert dict(points["console_scripts"]) == {
        "skyplane-orch": "skyplane_orchestration.cli.main:entry_point",
        "skyplane-gateway": "skyplane_gateway.main:entry_point",
    }
    assert dict(points["apache_airflow_provider"]) == {
        "provider_info": "skyplane_orchestration.provider_info:get_provider_info"
    }
    assert dict(points["dagster_dg_cli.registry_modules"]) == {
        "skyplane_orchestration": "skyplane_orchestration.dagster"
    }


def test_licence_travels_with_the_wheel(wheel: Path, repository: Path) -> None:
    with ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/licenses/LICENSE"))
        assert archive.read(name) == (repository / "LICENSE").read_bytes()
