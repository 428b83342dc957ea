"""Fleets in a cluster that lacks something: what the errors say, and that nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.provision.fleet.cloud_harness import TERMINATE
from tests.provision.fleet.fleet_harness import CloudFleetHarness, cloud_fleets
from tests.provision.kubernetes.harness import KubernetesHarness, kubernetes_harness

from skyplane_orchestration.errors import ProvisionFailed, TeardownIncomplete
from skyplane_orchestration.provision.kubernetes.checks import OF_BALANCERS, PERMISSIONS

if TYPE_CHECKING:
    from tests.provision.kubernetes.cluster import Cluster

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def fleets(kubernetes_cluster: Cluster) -> Iterator[CloudFleetHarness]:
    opened: Any = partial(kubernetes_harness, kubernetes_cluster)
    with cloud_fleets(opened) as made:
        yield made


@pytest.fixture
def site(fleets: CloudFleetHarness) -> KubernetesHarness:
    return cast(KubernetesHarness, fleets.cloud)


def test_a_teardown_without_the_right_to_delete_says_so_and_the_next_one_ends_the_pods(
    fleets: CloudFleetHarness, site: KubernetesHarness
) -> None:
    spec = fleets.spec()
    fleets.provisioner().ensure(spec, fleets.authority(spec))
    site.deny(TERMINATE)
    with pytest.raises(TeardownIncomplete, match="refuses delete jobs in namespace"):
        fleets.provisioner().destroy(spec.key)
    assert len(fleets.running()) == 5
    site.grant({**PERMISSIONS, **OF_BALANCERS})
    assert len(fleets.provisioner().destroy(spec.key)) == 5
    assert fleets.traces() == []


@pytest.mark.parametrize(
    ("lack", "said"),
    [
        (
            "unpullable",
            "ImagePullBackOff: Back-off pulling image: ErrImagePull: pull access denied",
        ),
        ("unschedulable", "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."),
    ],
)
def test_pods_that_do_not_start_are_an_error_with_the_words_of_the_cluster(
    fleets: CloudFleetHarness,
    site: KubernetesHarness,
    caplog: pytest.LogCaptureFixture,
    lack: str,
    said: str,
) -> None:
    """The first wait tells already, and asks nobody for the addresses of workers."""
    setattr(site.kubelet, lack, True)
    spec, began_s = fleets.spec(), fleets.clock.monotonic()
    with pytest.raises(ProvisionFailed) as failed:
        fleets.provisioner(boot_timeout_s=10.0).ensure(spec, fleets.authority(spec))
    assert said in failed.value.message
    assert fleets.clock.monotonic() - began_s < 120
    [*_, first] = [one for one in caplog.messages if "replacing" in one]
    assert said in first
    assert "control_cidrs" not in caplog.text + failed.value.message
    assert fleets.traces() == []
