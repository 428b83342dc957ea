"""Which settings go with which provisioner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.choice import ProvisionerChoice

HOSTS = Path("hosts.yaml")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"provisioner": "moon"}, "there is no provisioner 'moon'"),
        ({"provisioner": "ssh"}, "needs a hosts_file"),
        ({"provisioner": "ssh", "hosts_file": HOSTS, "hosts": {}}, "only one"),
        ({"hosts_file": HOSTS}, "'ssh' only"),
        ({"provisioner": "cloud"}, "needs a clouds_file"),
        ({"clouds_file": HOSTS}, "'cloud' only"),
        (
            {"provisioner": "cloud", "clouds_file": HOSTS, "processes_per_instance": 2},
            "fields of the clouds_file",
        ),
        ({"provisioner": "ssh", "hosts_file": HOSTS, "run_root": Path("/run")}, "'local' only"),
    ],
)
def test_settings_of_another_provisioner_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=says):
        ProvisionerChoice(**settings)
