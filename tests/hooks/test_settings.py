"""Settings from a connection's fields."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.clouds.gateways import IMAGE
from tests.hooks.conftest import FakeConnection

from skyplane_orchestration.client import FleetTimes
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.settings import Settings
from skyplane_orchestration.provider_info import CONNECTION_FIELDS
from skyplane_orchestration.provision.in_process.small_jobs import SmallJobsProvisioner
from skyplane_orchestration.provision.ssh import SshProvisioner

SECRET = "0123456789abcdef" * 4


def settings_of(extra: dict[str, Any] | None = None, password: str | None = None) -> Settings:
    return Settings.from_connection(FakeConnection(password=password, extra_dejson=extra or {}))


def test_an_empty_connection_gives_the_defaults() -> None:
    assert settings_of() == Settings()


def test_all_fields() -> None:
    settings = settings_of(
        {
            "deployment": "prod-eu",
            "provisioner": "local",
            "grid": "/grids/mine",
            "learned_grid": "s3://ops/rates/",
            "run_root": "/run/fleets",
            "gateway_settings": {"ack_deadline_s": 30, "stall_deadline_s": 45.5},
            "processes_per_instance": "3",
            "max_active_fleets": "4",
            "lease_s": "60",
            "start_within_s": 30,
            "hard_end_s": 3600,
        },
        SECRET,
    )
    assert settings.deployment == "prod-eu"
    assert settings.grid == "/grids/mine"
    assert settings.learned_grid == "s3://ops/rates/"
    assert settings.max_active_fleets == 4
    assert settings.run_root == Path("/run/fleets")
    provisioner: Any = settings.open_provisioner()
    assert type(settings.open_provisioner("auto")) is SmallJobsProvisioner
    assert provisioner.options.gateway_settings == {"ack_deadline_s": 30, "stall_deadline_s": 45.5}
    assert provisioner.options.processes_per_instance == 3
    assert settings.times == FleetTimes(start_within_s=30, lease_s=60, hard_end_s=3600)
    assert settings.secret is not None
    assert settings.secret.value == SECRET.encode()


def test_invalid_gateway_settings_are_refused_before_the_start() -> None:
    for useless in ({"directory": "/"}, {"stall_deadline_s": 1}):
        settings = settings_of({"gateway_settings": useless})
        with pytest.raises(ConfigurationInvalid, match=next(iter(useless))):
            settings.open_provisioner()


@pytest.mark.parametrize("name", ["processes_per_instance", "max_active_fleets"])
@pytest.mark.parametrize("wrong", ["two", -1, True, 1.5])
def test_a_wrong_number_is_refused(name: str, wrong: object) -> None:
    with pytest.raises(ConfigurationInvalid, match=f"{name} must be"):
        settings_of({name: wrong})


def test_a_limit_of_no_fleets_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="max_active_fleets must be at least 1"):
        settings_of({"max_active_fleets": "0"})


def test_fields_left_empty_in_the_form_count_as_missing() -> None:
    assert settings_of(dict.fromkeys(CONNECTION_FIELDS, None), "") == Settings()


def test_every_field_of_the_form_is_accepted() -> None:
    numbers = {
        name for name, form in CONNECTION_FIELDS.items() if "string" not in form["schema"]["type"]
    }
    values: dict[str, Any] = {
        **{name: 7 if name in numbers else "seven" for name in CONNECTION_FIELDS},
        "provisioner": "ssh",
        "gateway_credentials": "whole",
        "hosts": '{"local:rack": ["10.0.0.5"]}',
        "gateway_settings": '{"readers": 7}',
    }
    # The first excludes `hosts`, and the others `ssh`.
    for name in ("hosts_file", "run_root", "clouds_file", "clouds"):
        del values[name]
    provisioner = settings_of(values).open_provisioner()
    assert isinstance(provisioner, SshProvisioner)
    assert [host.address for host in provisioner.options.all_hosts()] == ["10.0.0.5"]


def test_clouds_may_be_in_the_connection_as_an_object_or_as_text() -> None:
    clouds = {"image": IMAGE.image, "control_cidrs": ["10.0.0.0/8"], "aws": {}}
    for given in (clouds, json.dumps(clouds)):
        extra = {"provisioner": "cloud", "deployment": "prod", "clouds": given}
        settings = settings_of(extra)
        assert settings.open_provisioner().name == "cloud"
        assert "10.0.0.0" not in repr(settings)


@pytest.mark.parametrize(
    "page",
    [
        "how-to/cloud-instances.md",
        "getting-started/aws-instances.md",
        "how-to/mwaa.md",
        "how-to/cloud-composer.md",
        "how-to/astronomer.md",
    ],
)
def test_the_example_of_a_page_can_be_used(page: str, repository: Path) -> None:
    """With credentials from connections of that type, which are asked for at the first call."""
    text = (repository / "docs" / page).read_text()
    block = re.search(r"<!-- test: airflow_extra -->\s*```json\n(.*?)```", text, re.DOTALL)
    assert block is not None
    settings = settings_of(json.loads(block[1]), SECRET)
    assert settings.open_provisioner().name == "cloud"


def test_the_secret_may_be_in_the_extra_and_is_not_in_the_repr() -> None:
    settings = settings_of({"fleet_secret": SECRET})
    assert settings.secret is not None
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"fleet_secret": "short"}, "32"),
        ({"provisioner": "moon"}, "no provisioner 'moon'"),
        ({"provisioner": "ssh"}, "needs a hosts_file"),
        ({"hosts_file": "/etc/hosts.yaml"}, "for the provisioner 'ssh' only"),
        ({"provisioner": "ssh", "hosts": "a"}, "hosts .* JSON object"),
        (
            {"provisioner": "ssh", "hosts": {"a": [{"python": "/tmp/x"}]}},
            "cannot have a field python",
        ),
        (
            {"provisioner": "ssh", "hosts": {"defaults": {"image": "x"}}},
            "cannot have a field image",
        ),
        (
            {"provisioner": "ssh", "hosts": {"a": []}, "hosts_file": "b"},
            "hosts_file and hosts exclude each other",
        ),
        (
            {"provisioner": "cloud", "clouds": "{"},
            "clouds .*not JSON: .*char 1",
        ),
        (
            {"provisioner": "cloud", "clouds": ["aws"]},
            "clouds .*, not a list",
        ),
        ({"deploiment": "x"}, "deploiment"),
        ({"lease_s": "soon"}, "lease_s"),
        ({"lease_s": 0}, "lease_s must be a number above zero"),
        ({"gateway_settings": "ack_deadline_s=3"}, "JSON object"),
        ({"gateway_settings": [1]}, "JSON object"),
        ({"command": ["/bin/sh"]}, "unknown extra fields: command"),
        ({"python": "/tmp/python"}, "unknown extra fields: python"),
    ],
)
def test_invalid_fields_are_named(extra: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=words):
        settings_of(extra)
