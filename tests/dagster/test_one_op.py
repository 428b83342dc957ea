"""Transfers inside one op: what they do, what they tell, how they fail."""

# No postponed annotations: Dagster reads those of the functions.

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from tests.dagster.conftest import Lab
from tests.transfer import samples

from skyplane_orchestration.dagster import SkyplaneResource, skyplane_assets
from skyplane_orchestration.errors import (
    DestinationsFailed,
    PlanInfeasible,
    StoreUnavailable,
    TooManyFleets,
    TransferFailed,
)
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location

DAYS = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02", "2026-01-03"])


def job_to(url: str, source: str = "s3://sydney/models/") -> TransferJob:
    return TransferJob(Location(source), Location(url))


#: One source, three destinations.
JOBS = {city: job_to(f"s3://{city}/models/") for city in ("paris", "tokyo", "oregon")}
DAILY = {"daily": job_to("s3://paris/day={partition_key}/", "s3://sydney/{partition_key}/")}


def assets_of(
    jobs: dict[str, TransferJob], arguments: dict[str, Any] | None = None, **options: Any
) -> dg.AssetsDefinition:
    @skyplane_assets(jobs=jobs, **options)
    def models(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
        yield from skyplane.run(context=context, **arguments or {})

    return models


def copied(lab: Lab) -> list[str]:
    """The destinations, in order."""
    return [job.destination.url for job, _ in lab.client.of("run")]


def told(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """Asset and partition -> the values of its metadata."""
    made = [event.materialization for event in result.get_asset_materialization_events()]
    return {
        "/".join(filter(None, (one.asset_key.path[-1], one.partition))): {
            name: value.value for name, value in one.metadata.items()
        }
        for one in made
    }


def failure(result: dg.ExecuteInProcessResult) -> Any:
    (event,) = [one for one in result.all_events if one.event_type_value == "STEP_FAILURE"]
    return event.step_failure_data.user_failure_data


def test_one_step_copies_for_all_assets(lab: Lab) -> None:
    result = lab.materialize(assets_of(JOBS))
    assert result.success
    steps = [event for event in result.all_events if event.event_type_value == "STEP_START"]
    assert [step.step_key for step in steps] == ["models"]
    assert copied(lab) == [f"s3://{city}/models/" for city in JOBS]
    assert {verb for verb in lab.client.verbs if verb != "identity"} == {"run"}
    assert len(set(lab.client.of("identity"))) == 3
    assert set(lab.client.places) == {"auto"}


def test_the_materialization_has_the_same_metadata_as_with_five_steps(lab: Lab) -> None:
    lab.client.result = samples.result(manifest_uri="file:///manifest")
    metadata = told(lab.materialize(assets_of(JOBS), selection=["paris"]))["paris"]
    assert metadata["dagster/uri"] == "s3://paris/models/"
    assert metadata["skyplane/source"] == "s3://sydney/models/"
    assert metadata["skyplane/bytes"] == 1000
    assert metadata["skyplane/plan"]["dst"] == "aws:eu-west-3"
    assert metadata["skyplane/manifest"] == "file:///manifest"


def test_a_copy_without_work_has_no_plan(lab: Lab) -> None:
    lab.client.result = samples.result(epoch=0)
    metadata = told(lab.materialize(assets_of(JOBS), selection=["paris"]))["paris"]
    assert "skyplane/plan" not in metadata
    assert metadata["skyplane/objects"] == 30


def test_it_waits_for_the_end_of_another_fleet(lab: Lab) -> None:
    lab.client.full = [TooManyFleets.of("prod", 2, ("aa", "bb"))] * 3
    assert lab.materialize(assets_of(JOBS), selection=["paris"]).success
    assert lab.client.full == []


def test_an_ordinary_asset_gives_its_job(lab: Lab) -> None:
    @dg.asset
    def report(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
        yield from skyplane.run(context, job=JOBS["tokyo"], gateways="never")

    assert lab.materialize(report).success
    assert copied(lab) == ["s3://tokyo/models/"]
    assert lab.client.places == ["never"]


def backfill(lab: Lab) -> dg.ExecuteInProcessResult:
    """All days as one run."""
    made = assets_of(DAILY, partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    days = DAYS.get_partition_keys()
    return lab.materialize(
        made,
        tags={
            "dagster/asset_partition_range_start": days[0],
            "dagster/asset_partition_range_end": days[-1],
        },
    )


def test_a_backfill_in_one_run_copies_each_partition(lab: Lab) -> None:
    result = backfill(lab)
    assert result.success
    days = DAYS.get_partition_keys()
    assert copied(lab) == [f"s3://paris/day={day}/" for day in days]
    metadata = told(result)
    assert {day: metadata[f"daily/{day}"]["dagster/uri"] for day in days} == {
        day: f"s3://paris/day={day}/" for day in days
    }


def test_a_failed_partition_fails_the_asset_after_the_others(lab: Lab) -> None:
    lab.client.fail("run", StoreUnavailable("later"))
    result = backfill(lab)
    assert not result.success
    assert len(copied(lab)) == 3
    assert told(result) == {}
    assert failure(result).description == "store-unavailable: later"


def test_a_failed_copy_does_not_stop_the_others(lab: Lab) -> None:
    lab.client.fail("run", StoreUnavailable("later"))
    result = lab.materialize(assets_of(JOBS))
    assert not result.success
    assert len(copied(lab)) == 3
    assert sorted(told(result)) == ["oregon", "tokyo"]
    assert failure(result).description == "store-unavailable: later"


def test_several_failures_are_told_by_asset(lab: Lab) -> None:
    left = samples.result(failed=1, resume_handle="skyplane-resume:abc")
    lab.client.fail("run", PlanInfeasible("too fast"), TransferFailed("1 of 3", result=left))
    said = failure(lab.materialize(assets_of(JOBS)))
    assert said.description == "paris: plan-infeasible: too fast; tokyo: transfer-failed: 1 of 3"
    assert said.metadata["skyplane/error/paris"].value["code"] == "plan-infeasible"
    assert said.metadata["skyplane/result/tokyo"].value["resume_handle"] == "skyplane-resume:abc"


def test_a_failure_logs_how_to_resume(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    left = samples.result(failed=1, resume_handle="skyplane-resume:abc")
    lab.client.fail("run", TransferFailed("1 of 3 objects failed", result=left))
    lab.materialize(assets_of(JOBS), selection=["paris"])
    log = capfd.readouterr().err
    assert "paris: transfer-failed: 1 of 3 objects failed" in log
    assert "skyplane-orch resume RESULT.json --deployment test" in log


def test_a_retry_continues_with_the_same_identity(lab: Lab) -> None:
    lab.client.fail("run", StoreUnavailable("later"))
    made = assets_of(JOBS, retry_policy=dg.RetryPolicy(max_retries=1))
    assert lab.materialize(made, selection=["paris"]).success
    (identity,) = set(lab.client.of("identity"))
    assert (identity.deployment, identity.owner) == ("test", "paris")


@pytest.mark.parametrize(
    ("errors", "tries"),
    [
        ([PlanInfeasible("too fast")], 1),
        ([PlanInfeasible("too fast"), StoreUnavailable("later"), StoreUnavailable("later")], 6),
    ],
)
def test_a_permanent_error_alone_is_not_retried(
    lab: Lab, errors: list[BaseException], tries: int
) -> None:
    lab.client.fail("run", *errors)
    made = assets_of(JOBS, retry_policy=dg.RetryPolicy(max_retries=1))
    lab.materialize(made, selection=["paris"] if len(errors) == 1 else None)
    assert len(copied(lab)) == tries


def test_an_interruption_ends_the_op_at_once(lab: Lab) -> None:
    """The client has taken the gateways down by then."""
    lab.client.fail("run", dg.DagsterExecutionInterruptedError())
    assert not lab.materialize(assets_of(JOBS)).success
    assert len(copied(lab)) == 1


def test_the_run_is_tagged_for_the_cleanup_sensor(lab: Lab) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run_id = lab.materialize(assets_of(JOBS), instance=instance).run_id
        run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.tags["skyplane/deployment"] == "test"
    owner = RunIdentity("test", "tokyo", run_id)
    assert run.tags[f"skyplane/fleet/{owner.fleet_key()}"] == "tokyo"


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    """Asset -> whether its check has passed."""
    return {
        one.asset_key.to_user_string(): one.passed for one in result.get_asset_check_evaluations()
    }


def test_each_asset_has_a_check_and_a_data_version(lab: Lab) -> None:
    lab.client.result = samples.result(source_digest="abc")
    result = lab.materialize(assets_of(JOBS), selection=["paris", "tokyo"])
    assert checks(result) == {"paris": True, "tokyo": True}
    for event in result.get_asset_materialization_events():
        assert (event.materialization.tags or {})["dagster/data_version"] == "abc"


def test_a_failed_copy_fails_its_check(lab: Lab) -> None:
    left = samples.result(failed=1)
    lab.client.fail("run", TransferFailed("1 of 3 objects failed", result=left))
    assert checks(lab.materialize(assets_of(JOBS))) == {
        "paris": False,
        "tokyo": True,
        "oregon": True,
    }


def test_checks_may_be_left_out(lab: Lab) -> None:
    made = assets_of(JOBS, checks=False)
    assert list(made.check_keys) == []
    assert checks(lab.materialize(made)) == {}


@pytest.mark.parametrize(
    ("arguments", "clue"),
    [
        ({"job": JOBS["paris"]}, "job is for one asset, and this op makes 3"),
        ({"manifest": "/m.parquet"}, "manifest is one file for 3 assets"),
    ],
)
def test_arguments_of_one_asset_are_refused_for_several(
    lab: Lab, arguments: dict[str, Any], clue: str
) -> None:
    said = failure(lab.materialize(assets_of(JOBS, arguments)))
    assert clue in said.description
    assert copied(lab) == []


def test_an_asset_without_a_job_says_how_to_give_one(lab: Lab) -> None:
    @dg.asset
    def report(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Any:
        yield from skyplane.run(context)

    assert "define it with skyplane_assets" in failure(lab.materialize(report)).description


def test_one_fleet_brings_the_objects_to_all_assets(lab: Lab) -> None:
    result = lab.materialize(assets_of(JOBS, {"one_fleet": True}))
    assert result.success
    ((job, further),) = lab.client.of("run_to_all")
    assert [job.destination, *further] == [one.destination for one in JOBS.values()]
    assert copied(lab) == []
    assert {name: row["dagster/uri"] for name, row in told(result).items()} == {
        name: job.destination.url for name, job in JOBS.items()
    }


def test_each_asset_of_the_one_fleet_has_its_own_plan(lab: Lab) -> None:
    """An asset that has everything has none: those of the others say nothing of it."""
    urls = [job.destination.url for job in JOBS.values()]
    lab.client.regions = {urls[0]: "aws:a", urls[2]: "aws:b"}
    made = told(lab.materialize(assets_of(JOBS, {"one_fleet": True})))
    regions = dict(zip(JOBS, ("aws:a", "", "aws:b"), strict=True))
    assert set(made) == set(regions)
    for name, row in made.items():
        has_plan = regions[name] != ""
        assert ("skyplane/plan" in row) == has_plan
        assert ("skyplane/relays" in row) == has_plan
        assert bool(row["skyplane/facts"]["grid"]) == has_plan
        (output,) = row["skyplane/facts"]["outputs"]
        assert output["region"] == regions[name]


def test_one_asset_needs_no_shared_fleet(lab: Lab) -> None:
    assert lab.materialize(assets_of(JOBS, {"one_fleet": True}), selection=["tokyo"]).success
    assert copied(lab) == ["s3://tokyo/models/"]


def test_a_destination_that_fails_fails_its_asset_alone(lab: Lab) -> None:
    urls = [job.destination.url for job in JOBS.values()]
    done = {url: samples.result() for url in urls[:2]}
    error = DestinationsFailed.of(done, {urls[2]: StoreUnavailable("down")})
    lab.client.fail("run_to_all", error)
    result = lab.materialize(assets_of(JOBS, {"one_fleet": True}))
    assert not result.success
    assert set(told(result)) == {"paris", "tokyo"}
    assert "down" in failure(result).description


def test_a_fleet_for_all_that_cannot_be_planned_fails_without_a_retry(lab: Lab) -> None:
    lab.client.fail("run_to_all", PlanInfeasible("no path"))
    result = lab.materialize(assets_of(JOBS, {"one_fleet": True}))
    assert "no path" in failure(result).description
    assert failure(result).metadata["skyplane/error"].value["is_permanent"]


def test_a_fleet_for_all_waits_for_the_end_of_another(lab: Lab) -> None:
    lab.client.full = [TooManyFleets.of("prod", 2, ("aa", "bb"))]
    assert lab.materialize(assets_of(JOBS, {"one_fleet": True})).success
    assert lab.client.full == []


def test_jobs_that_differ_in_more_than_their_destinations_are_refused(lab: Lab) -> None:
    jobs = {**JOBS, "other": job_to("s3://rome/models/", "s3://perth/models/")}
    result = lab.materialize(assets_of(jobs, {"one_fleet": True}))
    assert "differ in their destinations alone" in failure(result).description
    assert lab.client.of("run_to_all") == []
