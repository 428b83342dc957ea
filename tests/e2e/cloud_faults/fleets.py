"""Fleets on instances of a strict cloud, and workers that use them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.e2e.cloud_sites import CloudSite

from skyplane_orchestration.client import Client
from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.provision.cloud_registry import read_clouds
from skyplane_orchestration.security.store_credentials import CredentialSources

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

#: Of the fixture `job`.
OBJECTS: Final = 22


class Workers:
    """Clients of one run, each as in a process of its own."""

    def __init__(self, kit: ClientKit, clouds_file: Path) -> None:
        self._kit, self._clouds_file = kit, clouds_file

    def client(self, run: str = "run") -> Client:
        provisioner = read_clouds(self._clouds_file).open(CredentialSources())
        return self._kit.client(run, provisioner=provisioner)


def instances_plan(kit: ClientKit, site: CloudSite, *path: str) -> TransferPlan:
    """One instance in each region of the path, or in both regions of the site."""
    made = kit.plan(path or site.regions)
    group = InstanceGroup(site.instance_type, 1)
    return replace(made, instances=dict.fromkeys(made.instances, group))
