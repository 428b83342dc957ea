"""Strict fakes of the clouds, each with settings for a fleet in two of its regions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests.clouds.fakes import open_arm, open_ec2, open_gce
from tests.clouds.gateways import settings_here

from skyplane_orchestration.client import Client
from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.provision.cloud_registry import read_clouds
from skyplane_orchestration.security.store_credentials import CredentialSources
from strict_clouds import arm, gce
from strict_clouds.arm import StrictArm
from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit


class Fake(Protocol):
    """What the fakes have in common."""

    calls: list[Any]

    @property
    def conditions(self) -> Any: ...

    def leftovers(self) -> dict[str, list[str]]: ...


@dataclass(frozen=True)
class CloudSite:
    """A fake, and what a fleet in two of its regions needs.

    Attributes:
        regions: their tags.
        section: of the cloud, in a clouds file.
        name_of: what the fake calls a request, such as `machines.delete`.
        relay: tag of a third region.
        instance_type: the planner's first choice.
        end_by_hand: ends an instance by its id, as somebody does in the cloud's console.
    """

    fake: Fake
    regions: tuple[str, str]
    section: Mapping[str, Any]
    name_of: Callable[[Any], str]
    relay: str
    instance_type: str
    end_by_hand: Callable[[str], None]

    def write_clouds_file(self, path: Path, **more: Any) -> None:
        cloud = self.regions[0].partition(":")[0]
        section = {**self.section, "regions": (*self.regions, self.relay)}
        path.write_text(json.dumps(settings_here(**{cloud: section}, **more)))

    def client(self, kit: ClientKit, path: Path, **more: Any) -> Client:
        """One with those settings, which are written to the path."""
        self.write_clouds_file(path, **more)
        return kit.client(provisioner=read_clouds(path).open(CredentialSources()))

    def relayed(self, kit: ClientKit) -> TransferPlan:
        """From one region over the relay to the other, with an instance in each."""
        made = kit.plan((self.regions[0], self.relay, self.regions[1]))
        group = InstanceGroup(self.instance_type, 1)
        return replace(made, instances=dict.fromkeys(made.instances, group))


@contextmanager
def _aws(world: World) -> Iterator[CloudSite]:
    with open_ec2(world, deployments=("tests",)) as fake:
        regions = "aws:eu-west-3", "aws:us-east-1"
        fake.conditions.opt_in["us-east-2"] = "opt-in-not-required"
        yield CloudSite(
            fake,
            regions,
            {"endpoint_url": fake.url},
            attrgetter("action"),
            relay="aws:us-east-2",
            instance_type="c7gn.large",
            end_by_hand=fake.end_by_hand,
        )


@contextmanager
def _azure(world: World) -> Iterator[CloudSite]:
    with open_arm(world) as fake:
        fake.conditions.operation_polls = 0
        section = {"subscription_id": arm.SUBSCRIPTION, "endpoint_url": fake.url}
        regions = "azure:westeurope", "azure:eastus"
        yield CloudSite(
            fake,
            regions,
            section,
            attrgetter("rule"),
            relay="azure:westus",
            instance_type="Standard_D4s_v5",
            end_by_hand=partial(_end_machine, fake),
        )


@contextmanager
def _gcp(world: World) -> Iterator[CloudSite]:
    with open_gce(world) as fake:
        fake.conditions.now_s = time.time()
        section = {"project": gce.PROJECT, "endpoint_url": fake.url}
        regions = "gcp:us-central1", "gcp:europe-west1"
        yield CloudSite(
            fake,
            regions,
            section,
            attrgetter("method"),
            relay="gcp:me-west1",
            instance_type="n2-standard-4",
            end_by_hand=fake.end_by_hand,
        )


def _end_machine(fake: StrictArm, cloud_id: str) -> None:
    name = cloud_id.partition("/")[0]
    fake.machines.end_by_hand(next(one for one in fake.virtual_machines() if one["name"] == name))


SITES: Final[Mapping[str, Callable[[World], AbstractContextManager[CloudSite]]]] = {
    "aws": _aws,
    "azure": _azure,
    "gcp": _gcp,
}
