"""Which settings go with which provisioner."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.transfer import samples

from skyplane_orchestration.client_settings import ClientSettings
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.provision.local.machine import host_identity
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.rate_samples import write_samples

HOSTS = Path("hosts.yaml")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"provisioner": "moon"}, "there is no provisioner 'moon'"),
        ({"provisioner": "ssh"}, "needs a hosts_file"),
        ({"provisioner": "ssh", "hosts_file": HOSTS, "hosts": {}}, "exclude each other"),
        ({"hosts_file": HOSTS}, "'ssh' only"),
        ({"provisioner": "cloud"}, "needs a clouds_file, or clouds"),
        ({"provisioner": "cloud", "clouds_file": HOSTS, "clouds": {}}, "exclude each other"),
        ({"clouds_file": HOSTS}, "^clouds_file is for the provisioner 'cloud' or 'aws' or "),
        ({"clouds": {"aws": {}}}, "^clouds is for the provisioner 'cloud' or 'aws' or "),
        (
            {"provisioner": "gcp", "clouds_file": HOSTS, "processes_per_instance": 2},
            "of the provisioner 'gcp' are fields of the clouds_file",
        ),
        (
            {"provisioner": "cloud", "clouds_file": HOSTS, "processes_per_instance": 2},
            "fields of the clouds_file",
        ),
        ({"provisioner": "ssh", "hosts_file": HOSTS, "run_root": Path("/run")}, "'local' only"),
    ],
)
def test_settings_of_another_provisioner_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=says):
        ClientSettings(**settings)


def test_plans_of_the_client_read_the_learned_grid(tmp_path: Path) -> None:
    now_unix_s = time.time()
    sample = EdgeMeasurement("aws:us-east-1", "gcp:us-east1", 1.25, 64, 1, 30.0, 1, now_unix_s)
    write_samples(str(tmp_path), [sample], CredentialSources())
    settings = ClientSettings(learned_grid=str(tmp_path))
    grid = settings.client(RunIdentity("tests", "dag", "run")).grid
    place = grid.index_of(sample.src), grid.index_of(sample.dst)
    assert grid.throughput_gbps[place] == 1.25


@pytest.mark.parametrize(
    ("settings", "deployment", "options"),
    [
        ({}, "local", ""),
        ({"run_root": Path("/my runs")}, "local", " --run-root '/my runs'"),
        (
            {"provisioner": "cloud", "clouds_file": Path("c.yaml")},
            "prod",
            " --provisioner cloud --clouds c.yaml --deployment prod",
        ),
        (
            {"provisioner": "ssh", "hosts_file": HOSTS},
            "prod",
            " --provisioner ssh --hosts hosts.yaml --deployment prod",
        ),
        ({"provisioner": "ssh", "hosts": {}}, "local", " --provisioner ssh --hosts HOSTS.yaml"),
        (
            {"provisioner": "azure", "clouds_file": Path("c.yaml")},
            "local",
            " --provisioner azure --clouds c.yaml",
        ),
        (
            {"provisioner": "cloud", "clouds": {}},
            "prod",
            " --provisioner cloud --clouds CLOUDS.yaml --deployment prod",
        ),
    ],
)
def test_a_command_names_the_same_provisioner_and_deployment(
    settings: dict[str, Any],
    deployment: str,
    options: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SKYPLANE_DEPLOYMENT", raising=False)
    command = ClientSettings(**settings, deployment=deployment).command("resume", "3f9c2a1b")
    assert command == "skyplane-orch resume 3f9c2a1b" + options


def test_a_command_overrides_the_deployment_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SKYPLANE_DEPLOYMENT", "prod")
    for name in ("local", "prod"):
        command = ClientSettings(deployment=name).command("sweep")
        assert command == f"skyplane-orch sweep --deployment {name}"


@pytest.mark.parametrize("made_by", ["local", "ssh", "cloud"])
@pytest.mark.parametrize(
    "choice",
    [
        ClientSettings(),
        ClientSettings(provisioner="ssh", hosts={"local:rack": [{"address": "192.0.2.1"}]}),
        ClientSettings(
            provisioner="aws",
            clouds={
                "image": f"registry.example/gateway@sha256:{'0' * 64}",
                "control_cidrs": ["203.0.113.7/32"],
                "aws": {},
            },
        ),
    ],
    ids=lambda choice: choice.provisioner,
)
def test_a_fleet_of_another_provisioner_is_refused(choice: ClientSettings, made_by: str) -> None:
    """Else its teardown would end nothing, and call the gateways that answer ended."""
    provisioner = choice.open_provisioner()
    fleet = Fleet.without_gateways("f1ee7", "test", samples.PLAN)
    fleet = replace(fleet, provisioner=made_by, host=host_identity())
    if made_by == provisioner.name:
        provisioner.check_host(fleet)
        return
    with pytest.raises(ConfigurationInvalid, match=f"was made by the provisioner '{made_by}'"):
        provisioner.check_host(fleet)
