"""The end of fleets: of instances that are not alive and not gone, and in clouds not configured."""

from __future__ import annotations

import pytest
from tests.manual_clock import ManualClock
from tests.provision.fleet.harness import InstancesHarness

from skyplane_orchestration.errors import ConfigurationInvalid


def test_an_instance_that_has_stopped_by_itself_is_ended() -> None:
    harness = InstancesHarness()
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    for cloud_id in harness.account.instances:
        harness.account.stop(cloud_id)
    assert harness.provisioner(clock=ManualClock().clock).destroy(spec.key) == ()
    assert harness.traces() == []


def test_a_sweep_ends_instances_that_have_stopped_by_themselves() -> None:
    harness = InstancesHarness()
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    for cloud_id in harness.account.instances:
        harness.account.stop(cloud_id)
    report = harness.provisioner().sweep(spec.deployment)
    assert [orphan.key for orphan in report.orphans] == [spec.key]
    assert harness.traces() == []


def test_a_fleet_with_instances_in_a_cloud_without_settings_is_refused() -> None:
    """Else its teardown would end the others, and say that all have ended."""
    harness = InstancesHarness()
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    harness.provisioner().check_host(fleet)
    with pytest.raises(ConfigurationInvalid, match="needs settings for the cloud 'gcp'"):
        harness.provisioner(clouds=("aws", "azure")).check_host(fleet)
