"""A run with several partitions: one plan, one fleet, one transfer for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from tests.transfer import samples

from skyplane_orchestration.dagster import build_skyplane_transfer_asset
from skyplane_orchestration.dagster.cleanup import _FLEET_TAG
from skyplane_orchestration.errors import ConfigurationInvalid, StoreUnavailable, TransferFailed
from skyplane_orchestration.model.result import CostOutcome

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab

DAYS = dg.StaticPartitionsDefinition(["mon", "tue", "wed", "thu"])
RANGE = {
    "dagster/asset_partition_range_start": "tue",
    "dagster/asset_partition_range_end": "thu",
}


def daily(**options: Any) -> dg.AssetsDefinition:
    return build_skyplane_transfer_asset(
        "daily",
        source="s3://a/{partition_key}/",
        destination="s3://b/day={partition_key}/",
        partitions_def=DAYS,
        **{"backfill_policy": dg.BackfillPolicy.single_run(), **options},
    )


def data_version(event: dg.DagsterEvent) -> str:
    return (event.step_materialization_data.materialization.tags or {})["dagster/data_version"]


def test_one_run_copies_its_partitions_over_one_fleet(lab: Lab) -> None:
    result = lab.materialize(daily(manifest="s3://b/{partition_key}.parquet"), tags=RANGE)
    assert result.success
    (measured,) = lab.client.of("plan_together")
    assert [(job.source.url, job.volume_gb) for job in measured] == [
        ("s3://a/tue/", 1.0),
        ("s3://a/wed/", 1.0),
        ("s3://a/thu/", 1.0),
    ]
    assert lab.client.verbs.count("check") == 3
    assert lab.client.verbs.count("provision") == lab.client.verbs.count("teardown") == 1
    done = lab.client.of("transfer")
    assert {fleet for fleet, _, _ in done} == set(lab.client.keys("provision"))
    assert [(job.destination.url, manifest) for _, job, manifest in done] == [
        ("s3://b/day=tue/", "s3://b/tue.parquet"),
        ("s3://b/day=wed/", "s3://b/wed.parquet"),
        ("s3://b/day=thu/", "s3://b/thu.parquet"),
    ]


def test_each_partition_has_a_materialization_with_its_own_metadata(lab: Lab) -> None:
    events = lab.materialize(daily(), tags=RANGE).get_asset_materialization_events()
    told = {event.materialization.partition: event.materialization.metadata for event in events}
    assert {day: metadata["dagster/uri"].value for day, metadata in told.items()} == {
        day: f"s3://b/day={day}/" for day in ("tue", "wed", "thu")
    }


def test_the_costs_of_partitions_add_up_to_that_of_the_run(lab: Lab) -> None:
    """Each result of the client has the requests of the whole plan."""
    lab.client.result = samples.result(cost=CostOutcome(1.0, 0.0, 3.0))
    events = lab.materialize(daily(), tags=RANGE).get_asset_materialization_events()
    told = [event.materialization.metadata["skyplane/planned_cost_usd"].value for event in events]
    assert told == [pytest.approx(1.0 + 3.0 / 3)] * 3


def test_a_run_without_work_has_no_volume_only_if_no_partition_has_any(lab: Lab) -> None:
    lab.client.is_unchanged = True
    result = lab.materialize(daily(), tags=RANGE)
    assert result.output_for_node("daily.plan")["volume_gb"] == 0


def test_the_next_partition_uses_the_fleet_that_replaced_the_first(lab: Lab) -> None:
    lab.client.moved_to = "ffee"
    assert lab.materialize(daily(), tags=RANGE).success
    (first,) = lab.client.keys("provision")
    assert [fleet for fleet, _, _ in lab.client.of("transfer")] == [first, "ffee", "ffee"]
    assert lab.client.keys("teardown") == ["ffee"]


def test_a_partition_that_fails_ends_the_run(lab: Lab) -> None:
    lab.client.fail("transfer", TransferFailed("no", result=samples.result(failed=2)))
    result = lab.materialize(daily(), tags=RANGE)
    assert not result.success
    assert lab.client.verbs.count("transfer") == lab.client.verbs.count("teardown") == 1
    assert result.get_asset_materialization_events() == []


def test_a_retry_looks_at_all_partitions_again(lab: Lab) -> None:
    lab.client.fail("transfer", StoreUnavailable("later"))
    retry = dg.RetryPolicy(max_retries=1)
    result = lab.materialize(daily(retry_policy=retry), tags=RANGE)
    assert result.success
    assert len(lab.client.of("transfer")) == 1 + 3


def test_the_run_has_the_tag_of_its_one_fleet(lab: Lab) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = lab.materialize(daily(), instance=instance, tags=RANGE)
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        (tag,) = [name for name in run.tags if name.startswith(_FLEET_TAG)]
    assert lab.client.keys("provision") == [tag.removeprefix(_FLEET_TAG)]


def test_by_default_each_partition_has_a_run(lab: Lab) -> None:
    made = daily(backfill_policy=None)
    assert made.backfill_policy is None
    assert lab.materialize(made, partition_key="mon").success
    assert "plan_together" not in lab.client.verbs


def test_one_run_cannot_copy_partitions_in_several_buckets() -> None:
    def build(policy: dg.BackfillPolicy) -> None:
        build_skyplane_transfer_asset(
            "x",
            source="gs://{partition_key}/x/",
            destination="s3://b/{partition_key}/",
            partitions_def=DAYS,
            backfill_policy=policy,
        )

    build(dg.BackfillPolicy.multi_run(max_partitions_per_run=1))
    with pytest.raises(ConfigurationInvalid, match="backfill_policy"):
        build(dg.BackfillPolicy.single_run())


def test_the_pool_holds_no_teardown() -> None:
    ops = daily(pool="sydney").node_def.iterate_op_defs()
    assert {op.name: op.pool for op in ops} == {
        "daily__plan": "sydney",
        "daily__provision": "sydney",
        "daily__transfer": "sydney",
        "daily__teardown": None,
        "daily__finish": None,
    }


def test_several_partitions_have_one_data_version(lab: Lab) -> None:
    versions = []
    for digest in ("one", "one", "two"):
        lab.client.result = replace(lab.client.result, source_digest=digest)
        events = lab.materialize(daily(), tags=RANGE).get_asset_materialization_events()
        versions.append({data_version(event) for event in events})
    assert versions[0] == versions[1] != versions[2]
    assert {len(found) for found in versions} == {1}
