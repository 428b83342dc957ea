"""What an import loads, seen from a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HEAVY = (
    "aiohttp",
    "airflow",
    "azure",
    "boto3",
    "botocore",
    "dagster",
    "google.auth",
    "google.cloud",
    "matplotlib",
    "networkx",
    "numpy",
    "paramiko",
    "pyarrow",
    "rich",
    "scipy",
)
CLOUDS_AND_ORCHESTRATORS = (
    "airflow",
    "azure",
    "boto3",
    "botocore",
    "dagster",
    "google.auth",
    "google.cloud",
)


def loaded_by(statements: str) -> set[str]:
    """Names of the modules in sys.modules after `statements` ran in a new interpreter."""
    code = f"{statements}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_of_the_library_loads_nothing_heavy() -> None:
    assert loaded_by("import skyplane_orchestration").isdisjoint(HEAVY)


def test_nouns_load_nothing_heavy() -> None:
    loaded = loaded_by(
        "from skyplane_orchestration import TransferJob, Location, MinimizeCost, Deadline\n"
        "from skyplane_orchestration import Fleet, RunIdentity, TransferPlan, TransferResult\n"
        "TransferJob(Location('s3://a/b/'), Location('gs://c/d/'), MinimizeCost(10))"
    )
    assert loaded.isdisjoint(HEAVY)


def test_provider_info_loads_no_airflow() -> None:
    loaded = loaded_by(
        "from skyplane_orchestration.provider_info import get_provider_info; get_provider_info()"
    )
    assert loaded.isdisjoint(HEAVY)


def test_planner_loads_no_cloud_and_no_orchestrator() -> None:
    loaded = loaded_by("from skyplane_orchestration.planner import *")
    assert "scipy" in loaded
    assert loaded.isdisjoint((*CLOUDS_AND_ORCHESTRATORS, "matplotlib"))


def test_no_name_of_the_planner_is_that_of_one_of_its_modules() -> None:
    """It would mean the module once that is imported, and not what the module holds."""
    from skyplane_orchestration import planner

    folder = Path(planner.__path__[0])
    assert set(planner.__all__).isdisjoint(path.stem for path in folder.iterdir())
    for name in planner.__all__:
        assert not isinstance(getattr(planner, name), ModuleType)


@pytest.mark.parametrize("src", ["aws:eu-west-3", "local:this-machine"])
def test_a_plan_within_one_region_loads_neither_solver_nor_numpy(src: str) -> None:
    loaded = loaded_by(
        "from skyplane_orchestration import Client, Location, TransferJob\n"
        f"ends = (Location(url, {src!r}) for url in ('file:///a/', 's3://b/'))\n"
        "plan = Client().plan(TransferJob(*ends, volume_gb=1.0))\n"
        "assert plan.throughput_gbps > 0 and plan.solver.status == 'optimal'"
    )
    assert loaded.isdisjoint({"scipy", "numpy"})


def test_a_copy_inside_the_process_loads_no_tls_and_no_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"1")
    loaded = loaded_by(
        "from skyplane_orchestration.cli.main import main\n"
        f"main(['cp', '-q', '-r', '{tmp_path}/in/', '{tmp_path}/out/'])"
    )
    assert (tmp_path / "out" / "a").read_bytes() == b"1"
    assert "skyplane_gateway.control_server.open_gateway" in loaded
    assert loaded.isdisjoint({"cryptography", "aiohttp", "numpy", "scipy"})


def test_client_loads_no_cloud_and_no_orchestrator() -> None:
    loaded = loaded_by("from skyplane_orchestration import Client")
    assert loaded.isdisjoint(CLOUDS_AND_ORCHESTRATORS)


def test_every_module_of_the_gateway_loads_without_the_library(repository: Path) -> None:
    root = repository / "gateway"
    names = sorted(
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for path in (root / "skyplane_gateway").rglob("*.py")
        if path.stem != "__main__"  # Importing it starts a gateway.
    )
    loaded = loaded_by(f"from importlib import import_module\nfor n in {names}: import_module(n)")
    assert set(names) <= loaded
    unwanted = ("skyplane_orchestration", "skyplane_grids", "airflow", "dagster", "scipy", "numpy")
    assert loaded.isdisjoint(unwanted)


def test_public_names_resolve() -> None:
    import skyplane_orchestration

    for name in skyplane_orchestration.__all__:
        assert getattr(skyplane_orchestration, name) is not None
    assert set(skyplane_orchestration.__all__) <= set(dir(skyplane_orchestration))


def test_an_unknown_name_is_an_attribute_error() -> None:
    import skyplane_orchestration

    with pytest.raises(AttributeError, match="no attribute 'Transfer'"):
        _ = skyplane_orchestration.Transfer
