"""The label with the id of an instance's key."""

from __future__ import annotations

import pytest
from tests.provision.gcp.harness import GcpHarness
from tests.provision.gcp.samples import FLEET, REGION, a_request, prepared

from skyplane_orchestration.errors import CloudUnavailable, NotAuthorised

KEY_ID, OTHER_KEY_ID = "ab" * 20, "cd" * 20


def test_another_change_of_the_labels_is_kept(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    instance = cloud.launch(a_request())
    harness.gce.fail("instances.setLabels", 412, "conditionNotMet")
    cloud.pin_key(instance, KEY_ID)
    labels = harness.gce.instance(instance.cloud_id)["labels"]
    assert labels["skyplane_key"] == KEY_ID
    assert labels["skyplane_fleet"] == FLEET.fleet_key
    assert len(harness.gce.requests("instances.setLabels")) == 2


def test_a_key_is_pinned_once(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    instance = cloud.launch(a_request())
    cloud.pin_key(instance, KEY_ID)
    cloud.pin_key(instance, KEY_ID)
    assert len(harness.gce.requests("instances.setLabels")) == 1
    with pytest.raises(NotAuthorised, match=KEY_ID):
        cloud.pin_key(instance, OTHER_KEY_ID)
    assert [one.key_id for one in cloud.describe(FLEET.fleet_key, [REGION])] == [KEY_ID]


def test_labels_that_change_all_the_time_are_an_error(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    instance = cloud.launch(a_request())
    harness.gce.fail("instances.setLabels", 412, "conditionNotMet", times=100)
    with pytest.raises(CloudUnavailable, match="try again"):
        cloud.pin_key(instance, KEY_ID)


def test_an_instance_that_is_gone_is_an_error(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    instance = cloud.launch(a_request())
    harness.gce.end_by_hand(instance.cloud_id)
    with pytest.raises(CloudUnavailable, match="does not know the instance"):
        cloud.pin_key(instance, KEY_ID)
