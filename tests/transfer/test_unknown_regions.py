"""Copies whose gateways run on this machine need no region; gateways on instances do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skyplane_gateway.stores.s3.client import open_client
from skyplane_orchestration.client_settings import ClientSettings
from skyplane_orchestration.errors import InvalidLocation
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.fleet import GatewayPlace
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.in_process.small_jobs import (
    SmallJobsProvisioner,
    is_small_beside_clouds,
)
from skyplane_orchestration.provision.local.run_directory import RunRoot
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import preflight
from skyplane_orchestration.storage.open import spec_of
from skyplane_orchestration.transfer.planning import plan_job

NONE = CredentialSources(is_ambient_allowed=False)

#: A place of each kind that has no region of its own.
PLACES = {
    "file": Location("/tmp/x/"),
    "server": Location("s3://b/x/", endpoint_url="http://h:9000"),
    "azure": Location("az://account/container/x/"),
}
KNOWN = Location("s3://known/x/", "aws:eu-west-3")
PAIRS = [
    *((one, KNOWN) for one in PLACES.values()),
    *((KNOWN, one) for one in PLACES.values()),
    (PLACES["server"], PLACES["azure"]),
    (PLACES["azure"], PLACES["file"]),
]


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store names its region."""
    monkeypatch.setattr(preflight, "bucket_region", lambda spec, credentials: None)


def plan_of(job: TransferJob, provisioner: Any, *, may_assume: bool = True) -> Any:
    return plan_job(load_grid(), job, NONE, provisioner, None, may_assume=may_assume)


@pytest.mark.parametrize("place", ["auto", "always", "never"])
@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_a_plan_for_this_machine_needs_no_region(
    source: Location, destination: Location, place: GatewayPlace
) -> None:
    plan = plan_of(
        TransferJob(source, destination, volume_gb=20), ClientSettings().open_provisioner(place)
    )
    assert plan.src == plan.dst
    assert plan.src == (KNOWN.region if KNOWN in (source, destination) else "local:this-machine")
    unknown = [one for one in (source, destination) if not one.region and one.kind != "file"]
    notes = [note for note in plan.notes if "is not known" in note]
    assert [one.url in note for one, note in zip(unknown, notes, strict=True)] == [True] * len(
        notes
    )


class OnInstances:
    """Some provisioner of instances."""

    name = "aws"

    def quotas(self, regions: object) -> tuple[()]:
        return ()

    has_internal_addresses = True

    @property
    def provision_s(self) -> dict[str, float]:
        return {}


@pytest.mark.parametrize("end", ["source", "destination"])
def test_gateways_on_instances_need_the_region_unless_the_job_is_small(
    tmp_path: Any, end: str
) -> None:
    ends: dict[str, Any] = {"source": KNOWN, "destination": KNOWN, end: PLACES["azure"]}
    outside: Any = OnInstances()
    both = SmallJobsProvisioner(outside, RunRoot(tmp_path), "auto", is_small=is_small_beside_clouds)
    small = TransferJob(**ends, volume_gb=0.5)
    assert plan_of(small, both).src == KNOWN.region
    for provisioner, volume_gb in ((both, 20.0), (outside, 0.5)):
        with pytest.raises(InvalidLocation, match=f"give {end}_region .for example azure:west"):
            plan_of(TransferJob(**ends, volume_gb=volume_gb), provisioner)


def test_a_plan_that_is_shown_needs_the_region() -> None:
    job = TransferJob(KNOWN, PLACES["azure"], volume_gb=1)
    with pytest.raises(InvalidLocation, match="give destination_region"):
        plan_of(job, ClientSettings().open_provisioner(), may_assume=False)


@pytest.mark.parametrize(
    ("variables", "signed"),
    [
        ({}, "us-east-1"),
        ({"AWS_DEFAULT_REGION": "eu-north-1"}, "eu-north-1"),
        ({"AWS_DEFAULT_REGION": "eu-north-1", "AWS_REGION": "garage"}, "garage"),
    ],
)
def test_s3_signs_for_the_region_of_the_aws_cli(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], signed: str
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for tag in ("azure:westeurope", "local:this-machine", "gcp:us-east1"):
        client, _ = open_client(spec_of(planned(PLACES["server"], tag)), None)
        assert client.meta.region_name == signed
        client.close()


def planned(place: Location, tag: str) -> Location:
    """The place as the source of a job whose plan has that region at both ends."""
    plan = plan_of(
        TransferJob(PLACES["file"], KNOWN, volume_gb=1), ClientSettings().open_provisioner()
    )
    job = TransferJob(place, KNOWN)
    return preflight.with_planned_regions(job, replace(plan, src=tag, dst=tag), NONE).source


def test_a_region_that_is_known_is_signed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert planned(Location("s3://b/"), "aws:eu-west-3").region == "aws:eu-west-3"
    assert planned(KNOWN, "aws:us-east-1") == KNOWN
    assert planned(PLACES["azure"], "aws:us-east-1").region == ""
    assert planned(PLACES["server"], "aws:eu-west-3").region == "aws:us-west-2"
    # An endpoint of AWS in a private network.
    monkeypatch.setattr(preflight, "bucket_region", lambda spec, credentials: "eu-west-3")
    assert planned(PLACES["server"], "aws:eu-west-3").region == "aws:eu-west-3"
