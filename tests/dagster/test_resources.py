"""The resource: its settings, what importing it costs, the sweep sensor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from skyplane_orchestration.dagster import SkyplaneResource, build_skyplane_sweep_sensor
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.sweep_report import (
    SweepReport,
    SweptFleet,
    SweptPlace,
    SweptTransfer,
)

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab

IDENTITY = RunIdentity("test", "asset", "run")


def resolved(resource: SkyplaneResource) -> SkyplaneResource:
    """The resource as a run sees it, with its environment variables read."""
    made = resource.process_config_and_initialize()
    assert isinstance(made, SkyplaneResource)
    return made


def test_the_secret_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_FLEET_SECRET", "0123456789abcdef" * 4)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    resource = resolved(
        SkyplaneResource(
            fleet_secret=dg.EnvVar("TEST_FLEET_SECRET"), run_root=str(tmp_path / "run")
        )
    )
    ones = [resource.client(IDENTITY).authority("00ff").hello_key("a", "b") for _ in range(2)]
    assert ones[0] == ones[1]
    # Nothing was made in the home of this user: the secret is the one that was given.
    assert list(tmp_path.iterdir()) == []


def test_a_check_says_what_the_provisioner_lacks(tmp_path: Path) -> None:
    assert all(found.is_ok for found in SkyplaneResource(run_root=str(tmp_path / "run")).check())
    link = tmp_path / "link"
    link.symlink_to("/tmp")
    lacking = [found for found in SkyplaneResource(run_root=str(link)).check() if not found.is_ok]
    assert [found.name for found in lacking] == ["run root"]
    with pytest.raises(ConfigurationInvalid, match="hosts_file"):
        SkyplaneResource(provisioner="ssh").check()


def test_an_empty_section_of_clouds_may_be_null() -> None:
    made = resolved(SkyplaneResource(provisioner="cloud", clouds={"aws": None, "poll_s": 2}))
    assert made.clouds == {"aws": {}, "poll_s": 2}


def test_no_secret_is_in_the_repr() -> None:
    secret = "0123456789abcdef" * 4
    made = resolved(SkyplaneResource(fleet_secret=secret))
    assert secret not in f"{made!r} {made}"


@pytest.mark.parametrize(
    ("settings", "clue"),
    [({"fleet_secret": "short"}, "at least 32"), ({"grid": "/nowhere"}, "/nowhere")],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], clue: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=clue):
        _ = resolved(SkyplaneResource(**settings)).client(IDENTITY).grid


def test_settings_reach_client_and_provisioner(tmp_path: Path) -> None:
    given = {"ack_deadline_s": 30.0, "stall_deadline_s": 45.5, "readers": 2}
    resource = SkyplaneResource(
        start_within_s=5,
        lease_s=2,
        hard_end_s=60,
        max_active_fleets=2,
        gateway_settings=given,
        processes_per_instance=3,
        run_root=str(tmp_path),
    )
    client = resolved(resource).client(IDENTITY)
    times = client._fleets._times
    assert (times.start_within_s, times.lease_s, times.hard_end_s) == (5.0, 2.0, 60.0)
    assert client._fleets._max_active_fleets == 2
    provisioner: Any = client.provisioner
    assert provisioner.options.gateway_settings == given
    assert provisioner.options.processes_per_instance == 3


def test_loading_definitions_loads_no_cloud_and_no_solver() -> None:
    code = (
        "import json, sys\n"
        "from skyplane_orchestration import Location, TransferJob\n"
        "from skyplane_orchestration.dagster import *\n"
        "build_skyplane_transfer_asset('x', source='s3://a/', destination='s3://b/')\n"
        "jobs = {'y': TransferJob(Location('s3://a/'), Location('s3://b/'))}\n"
        "skyplane_assets(jobs=jobs, name='copy')(lambda context: None)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "dagster" in loaded
    # google-cloud-storage 2.10 makes the empty package `google.cloud` whenever Python starts.
    heavy = {"aiohttp", "airflow", "azure", "boto3", "botocore", "cryptography", "google.auth"}
    assert loaded.isdisjoint(heavy | {"matplotlib", "networkx", "numpy", "pyarrow", "scipy"})
    ours = {"skyplane_orchestration.client", "skyplane_orchestration.provision.local"}
    assert loaded.isdisjoint(ours)


def test_the_sweep_sensor_sweeps_its_deployment(lab: Lab) -> None:
    lab.client.swept = SweepReport((SweptFleet("ab", "gone", (), ""),), (), dry_run=False)
    with dg.build_sensor_context(resources={"skyplane": lab.resource}) as context:
        tick = build_skyplane_sweep_sensor().evaluate_tick(context)
    assert (tick.skip_message, tick.run_requests) == ("fleets removed: 1, kept: 0", [])
    (given,) = lab.client.of("sweep")
    assert lab.client.identity.deployment == "test"
    assert given["destinations"] == []


def test_the_sweep_sensor_sweeps_destinations_less_often(lab: Lab) -> None:
    place = Location("s3://paris/images/")
    gone = SweptTransfer("s3://paris/images/", "ab", 1, 1.0, "removed")
    lab.client.swept = SweepReport((), (), dry_run=False, places=(SweptPlace(place.url, (gone,)),))
    sensor = build_skyplane_sweep_sensor(
        destinations=[place], orphaned_uploads=True, recursive=False
    )
    with dg.build_sensor_context(resources={"skyplane": lab.resource}) as context:
        tick = sensor.evaluate_tick(context)
    assert "journals of transfers removed: 1" in str(tick.skip_message)
    (given,) = lab.client.of("sweep")
    assert given == {"destinations": [place], "orphaned_uploads": True, "recursive": False}
    assert sensor.minimum_interval_seconds == 21_600
    assert build_skyplane_sweep_sensor().minimum_interval_seconds == 900
    assert build_skyplane_sweep_sensor(minimum_interval_seconds=7).minimum_interval_seconds == 7


def test_the_sweep_sensor_fails_when_something_is_left(lab: Lab) -> None:
    stays = SweptFleet("ab", "gone", (), "pid 7 does not end")
    lab.client.swept = SweepReport((stays,), (), dry_run=False)
    with (
        dg.build_sensor_context(resources={"skyplane": lab.resource}) as context,
        pytest.raises(dg.Failure, match="fleet ab: pid 7"),
    ):
        build_skyplane_sweep_sensor().evaluate_tick(context)
