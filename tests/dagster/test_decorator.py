"""`skyplane_assets` and its translator: which assets they define."""

# No postponed annotations: Dagster reads those of the functions.

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from skyplane_orchestration.dagster import (
    DagsterSkyplaneTranslator,
    SkyplaneTranslatorData,
    skyplane_assets,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location


def job(source: str, destination: str) -> TransferJob:
    return TransferJob(Location(source), Location(destination))


def specs_of(jobs: dict[str, TransferJob], **options: Any) -> dict[str, dg.AssetSpec]:
    """Asset key -> its spec."""

    @skyplane_assets(jobs=jobs, **options)
    def models(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from ()

    definitions = dg.Definitions(assets=[models])
    definitions.get_repository_def().load_all_definitions()
    return {spec.key.to_user_string(): spec for spec in models.specs}


def test_each_job_is_an_asset() -> None:
    specs = specs_of(
        {
            "lake/models-1": job("s3://sydney/models/v1.2/", "gs://paris/models/"),
            "tokyo": job("s3://sydney/models/v1.2/", "az://account/container/x/"),
        }
    )
    assert list(specs) == ["lake/models-1", "tokyo"]
    spec = specs["lake/models-1"]
    assert [dep.asset_key.path for dep in spec.deps] == [["s3", "sydney", "models", "v1_2"]]
    assert spec.kinds == {"skyplane", "s3", "gcs"}
    assert spec.metadata["dagster/uri"] == "gs://paris/models/"
    assert spec.metadata["skyplane/source"] == "s3://sydney/models/v1.2/"
    assert spec.description == "A copy of s3://sydney/models/v1.2/ at gs://paris/models/."
    assert specs["tokyo"].kinds == {"skyplane", "s3", "azure"}


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("s3://sydney/", "s3/sydney"),
        ("s3://sydney/{partition_key}/raw/", "s3/sydney/raw"),
        ("s3://sydney/raw/dt={partition_key}/", "s3/sydney/raw"),
        ("s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/raw/",
         "s3/arn_aws_s3_eu-west-1_123456789012_accesspoint/raw"),
        ("az://account/container/raw/", "azure/account/container/raw"),
        ("file:///data/raw/", "file/data/raw"),
    ],
)  # fmt: skip
def test_the_source_is_an_asset_key(source: str, key: str) -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01") if "{" in source else None
    jobs = {"paris": job(source, "s3://paris/")}
    (spec,) = specs_of(jobs, partitions_def=days).values()
    assert [dep.asset_key.to_user_string() for dep in spec.deps] == [key]


class InGroup(DagsterSkyplaneTranslator):
    def get_asset_spec(self, data: SkyplaneTranslatorData) -> dg.AssetSpec:
        return dg.AssetSpec(
            ["copies", data.name, data.job.destination.kind],
            deps=["raw"],
            group_name="replication",
            tags={"tier": "gold"},
        )


def test_a_translator_makes_the_asset() -> None:
    (spec,) = specs_of({"paris": job("s3://a/", "s3://b/")}, translator=InGroup()).values()
    assert spec.key.path == ["copies", "paris", "s3"]
    assert [dep.asset_key.to_user_string() for dep in spec.deps] == ["raw"]
    assert (spec.group_name, spec.tags["tier"]) == ("replication", "gold")


def test_the_op_has_the_given_properties() -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01")

    @skyplane_assets(
        jobs={"paris": job("s3://a/{partition_key}/", "s3://b/{partition_key}/")},
        name="replicate",
        partitions_def=days,
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool="skyplane",
        op_tags={"cpu": "2"},
        retry_policy=dg.RetryPolicy(max_retries=3),
    )
    def models(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from ()

    assert models.op.name == "replicate"
    assert models.partitions_def == days
    assert models.backfill_policy == dg.BackfillPolicy.single_run()
    assert (models.op.pool, models.op.tags["cpu"]) == ("skyplane", "2")
    assert models.op.retry_policy == dg.RetryPolicy(max_retries=3)
    assert models.can_subset


@pytest.mark.parametrize("name", ["", "a b", "a.b", "/a", "a/"])
def test_a_name_is_an_asset_key(name: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="in jobs is no asset key"):
        specs_of({name: job("s3://a/", "s3://b/")})


def test_no_jobs_are_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="jobs is empty"):
        skyplane_assets(jobs={})
