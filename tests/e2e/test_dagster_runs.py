"""Transfer assets with real gateways between two S3 servers."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from tests.clouds.fakes import open_gce
from tests.clouds.gateways import settings_here

from skyplane_orchestration import Client, Location, MinimizeCost
from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_transfer_asset,
)
from skyplane_orchestration.model.job import Limits
from strict_clouds.ec2 import StrictEc2
from strict_clouds.gce import PROJECT
from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import Home, S3Server

pytestmark = pytest.mark.e2e

MIB = 1 << 20
#: Dagster's tag for the data version of a materialization.
DATA_VERSION = "dagster/data_version"
RELAYS_NEEDED_GBPS = 4.1


@pytest.fixture
def private(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """This process as one of the private home."""
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    return home


def asset_of(
    bucket: str, servers: tuple[S3Server, S3Server], **options: Any
) -> dg.AssetsDefinition:
    here, there = servers
    return build_skyplane_transfer_asset(
        "paris",
        source=Location(f"s3://{bucket}/data/", here.region, here.endpoint),
        destination=Location(f"s3://{bucket}/copy/", there.region, there.endpoint),
        # Exactly: for so few bytes a plan with fewer instances is cheaper in all.
        objective=MinimizeCost(RELAYS_NEEDED_GBPS, exactly=True),
        limits=Limits(instance_limit=1, chunk_mib=5),
        **options,
    )


def materialize(
    asset: dg.AssetsDefinition,
    resource: SkyplaneResource | None = None,
    tags: dict[str, str] | None = None,
) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        return dg.materialize(
            [asset],
            resources={"skyplane": resource or SkyplaneResource(lease_s=30)},
            instance=instance,
            tags=tags,
            raise_on_error=False,
        )


def digests(objects: dict[str, bytes]) -> dict[str, str]:
    return {key: hashlib.sha256(body).hexdigest() for key, body in objects.items()}


def test_an_asset_is_moved_over_relays_and_nothing_is_left(
    private: Home, servers: tuple[S3Server, S3Server], tmp_path: Path
) -> None:
    here, there = servers
    bucket = here.make_bucket("dagster-well")
    there.make_bucket(bucket)
    objects = {"large": os.urandom(11 * MIB), "empty": b"", "a+b %25/ü": b"odd", "_SUCCESS": b"ok"}
    here.fill(bucket, "data/", objects)
    result = materialize(asset_of(bucket, servers, manifest=str(tmp_path / "m.parquet")))
    assert result.success
    fleet = result.output_for_node("paris.provision")
    regions = {gateway["region"] for gateway in fleet["gateways"]}
    assert len(fleet["gateways"]) >= 4
    assert regions > {here.region, there.region}
    assert there.digests(bucket, "copy/") == digests(objects)
    (event,) = result.get_asset_materialization_events()
    told: dict[str, Any] = {n: value.value for n, value in event.materialization.metadata.items()}
    assert told["skyplane/objects"] == len(objects)
    assert told["skyplane/bytes"] == sum(map(len, objects.values()))
    assert told["skyplane/throughput_gbps"] > 0
    assert told["skyplane/plan"]["src"] == here.region
    assert told["skyplane/manifest"] == f"file://{tmp_path}/m.parquet"
    largest = told["skyplane/largest_objects"].records[0].data
    assert (largest["destination"], largest["bytes"]) == (f"s3://{bucket}/copy/large", 11 * MIB)
    # The version that an observation of the source sees.
    place = Location(f"s3://{bucket}/data/", here.region, here.endpoint)
    version = Client().source_version(place).digest
    assert (event.materialization.tags or {})[DATA_VERSION] == version
    assert private.traces() == []


def test_a_backfill_in_one_run_copies_its_partitions_over_one_fleet(
    private: Home, servers: tuple[S3Server, S3Server]
) -> None:
    here, there = servers
    bucket = here.make_bucket("dagster-backfill")
    there.make_bucket(bucket)
    objects = {f"{day}/{n}": os.urandom(1000) for day in ("mon", "tue", "wed") for n in range(3)}
    here.fill(bucket, "data/", objects)
    asset = build_skyplane_transfer_asset(
        "days",
        source=Location(f"s3://{bucket}/data/{{partition_key}}/", here.region, here.endpoint),
        destination=Location(
            f"s3://{bucket}/copy/{{partition_key}}/", there.region, there.endpoint
        ),
        objective=MinimizeCost(1),
        limits=Limits(instance_limit=1),
        conflict="replace-if-different",
        partitions_def=dg.StaticPartitionsDefinition(["mon", "tue", "wed"]),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    whole = {
        "dagster/asset_partition_range_start": "mon",
        "dagster/asset_partition_range_end": "wed",
    }
    results = [materialize(asset, tags=whole) for _ in range(2)]
    assert all(result.success for result in results)
    assert there.digests(bucket, "copy/") == digests(objects)
    first, again = (run.output_for_node("days.transfer")["results"] for run in results)
    assert [one["copied"] for one in first.values()] == [3, 3, 3]
    # Nothing is to be copied the second time, and no gateway starts.
    assert results[0].output_for_node("days.plan")["volume_gb"] == pytest.approx(9e-6)
    assert results[1].output_for_node("days.provision")["gateways"] == []
    assert [one["skipped"] for one in again.values()] == [3, 3, 3]
    versions = [
        {event.materialization.partition: (event.materialization.tags or {})[DATA_VERSION]
         for event in run.get_asset_materialization_events()}
        for run in results
    ]  # fmt: skip
    assert set(versions[0]) == {"mon", "tue", "wed"}
    assert versions[0] == versions[1]
    digest_of = {day: one["source_digest"] for day, one in first.items()}
    assert digest_of == {day: one["source_digest"] for day, one in again.items()}
    assert private.traces() == []


@pytest.mark.long
def test_an_asset_is_copied_by_instances_of_two_clouds(
    ec2: StrictEc2, world: World, tmp_path: Path
) -> None:
    """The resource has the settings of both."""
    source, destination = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "large").write_bytes(os.urandom(6 * MIB))
    (source / "empty").touch()
    asset = build_skyplane_transfer_asset(
        "iowa",
        source=Location(f"file://{source}/", "aws:us-east-1"),
        destination=Location(f"file://{destination}/", "gcp:us-central1"),
        limits=Limits(instance_limit=1),
    )
    with open_gce(world) as gce:
        google = {"endpoint_url": gce.url, "project": PROJECT}
        clouds = settings_here(aws={"endpoint_url": ec2.url}, gcp=google)
        result = materialize(
            asset, SkyplaneResource(provisioner="cloud", deployment="tests", clouds=clouds)
        )
        assert result.success
        assert gce.leftovers() == {}
    fleet = result.output_for_node("iowa.provision")
    regions = {gateway["region"] for gateway in fleet["gateways"]}
    assert regions >= {"aws:us-east-1", "gcp:us-central1"}
    for name in ("large", "empty"):
        assert (destination / name).read_bytes() == (source / name).read_bytes()
    (event,) = result.get_asset_materialization_events()
    assert "on instances" in str(event.materialization.metadata["skyplane/gateways"].value)
    assert ec2.leftovers() == {}
    assert not [machine for machine in world.machines if machine.is_running]


def conflicting_job(ends: str) -> dg.JobDefinition:
    """Built anew for every execution, as by a process of its own."""
    here, there = map(Location.from_dict, json.loads(ends))
    asset = build_skyplane_transfer_asset(
        "paris", source=here, destination=there, conflict="fail", objective=MinimizeCost(1)
    )
    definitions = dg.Definitions(
        assets=[asset],
        jobs=[dg.define_asset_job("copy", executor_def=dg.in_process_executor)],
        resources={"skyplane": SkyplaneResource(lease_s=30)},
    )
    return definitions.resolve_job_def("copy")


def test_a_failed_transfer_is_torn_down_and_a_re_execution_goes_on_with_it(
    private: Home, servers: tuple[S3Server, S3Server], tmp_path: Path
) -> None:
    here, there = servers
    bucket = here.make_bucket("dagster-fails")
    there.make_bucket(bucket)
    here.fill(bucket, "data/", {"one": b"1", "two": b"2"})
    there.fill(bucket, "copy/", {"one": b"was there before"})
    ends = (
        Location(f"s3://{bucket}/data/", here.region, here.endpoint),
        Location(f"s3://{bucket}/copy/", there.region, there.endpoint),
    )
    job = dg.build_reconstructable_job(
        "tests.e2e.test_dagster_runs",
        "conflicting_job",
        (json.dumps([end.to_dict() for end in ends]),),
    )
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        first = dg.execute_job(job, instance, raise_on_error=False)
        assert [event.step_key for event in first.get_step_failure_events()] == ["paris.transfer"]
        assert (
            there.digests(bucket, "copy/")["one"] == hashlib.sha256(b"was there before").hexdigest()
        )
        assert private.traces() == []
        there.client().delete_object(Bucket=bucket, Key="copy/one")
        with dg.execute_job(
            job,
            instance,
            reexecution_options=dg.ReexecutionOptions.from_failure(first.run_id, instance),
        ) as again:
            assert again.success
            result = again.output_for_node("paris.transfer")["results"][""]
    # One of the two was copied by the first run, which the journal tells.
    assert (result["copied"], result["copied_earlier"]) == (2, 1)
    assert there.digests(bucket, "copy/") == digests({"one": b"1", "two": b"2"})
    assert private.traces() == []
