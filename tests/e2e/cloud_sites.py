"""Strict fakes of the clouds, each with settings for a fleet in two of its regions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from tests.clouds import arm, gce
from tests.clouds.arm import strict_arm
from tests.clouds.ec2 import strict_ec2
from tests.clouds.gce import strict_gce
from tests.clouds.world import IMAGE, World


class Fake(Protocol):
    """What the fakes have in common."""

    @property
    def calls(self) -> Sequence[object]: ...

    def leftovers(self) -> dict[str, list[str]]: ...


@dataclass(frozen=True)
class CloudSite:
    """A fake, the tags of two regions that it has, and the cloud's section of a clouds file."""

    fake: Fake
    regions: tuple[str, str]
    section: Mapping[str, Any]

    def write_clouds_file(self, path: Path) -> None:
        """Settings whose workers are on the loopback interface, and look often."""
        cloud = self.regions[0].partition(":")[0]
        document = {
            "image": IMAGE.image,
            "control_cidrs": ["127.0.0.1/32"],
            "poll_s": 0.2,
            cloud: {**self.section, "regions": self.regions},
        }
        path.write_text(json.dumps(document))


@contextmanager
def _aws(world: World) -> Iterator[CloudSite]:
    with strict_ec2(world) as fake:
        yield CloudSite(fake, ("aws:eu-west-3", "aws:us-east-1"), {"endpoint_url": fake.url})


@contextmanager
def _azure(world: World) -> Iterator[CloudSite]:
    with strict_arm(world) as fake:
        fake.conditions.operation_polls = 0
        section = {"subscription_id": arm.SUBSCRIPTION, "endpoint_url": fake.url}
        yield CloudSite(fake, ("azure:westeurope", "azure:eastus"), section)


@contextmanager
def _gcp(world: World) -> Iterator[CloudSite]:
    with strict_gce(world) as fake:
        fake.conditions.now_s = time.time()
        section = {"project": gce.PROJECT, "endpoint_url": fake.url}
        yield CloudSite(fake, ("gcp:us-central1", "gcp:europe-west1"), section)


SITES: Final[Mapping[str, Callable[[World], AbstractContextManager[CloudSite]]]] = {
    "aws": _aws,
    "azure": _azure,
    "gcp": _gcp,
}
