"""The steps of a transfer asset: their order, their failures, what they tell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from tests.dagster.conftest import paris as asset
from tests.transfer import samples

from skyplane_orchestration.dagster import (
    DagsterSkyplaneTranslator,
    SkyplaneTranslatorData,
    build_skyplane_transfer_asset,
    build_skyplane_transfer_assets,
)
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    NotFound,
    PlanInfeasible,
    ProvisionFailed,
    StoreUnavailable,
    TeardownIncomplete,
    TooManyFleets,
    TransferFailed,
)
from skyplane_orchestration.model.job import MinimizeCost, TransferJob
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab

STEPS = ["plan", "provision", "transfer", "teardown", "finish"]


def states(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Step -> how its last try ended."""
    return {
        event.step_key.rpartition(".")[2]: event.event_type_value.removeprefix("STEP_")
        for event in result.all_events
        if event.step_key
        and event.event_type_value in ("STEP_SUCCESS", "STEP_FAILURE", "STEP_SKIPPED")
    }


def failure(result: dg.ExecuteInProcessResult, step: str) -> Any:
    """What the failed step says."""
    (event,) = [
        event
        for event in result.all_events
        if event.event_type_value == "STEP_FAILURE" and (event.step_key or "").endswith("." + step)
    ]
    return event.step_failure_data.user_failure_data


def test_all_ops_succeed(lab: Lab) -> None:
    result = lab.materialize(asset(manifest="/m.parquet"))
    assert result.success
    assert states(result) == dict.fromkeys(STEPS, "SUCCESS")
    verbs = [verb for verb in lab.client.verbs if verb != "identity"]
    assert verbs == ["check", "plan", "provision", "transfer", "teardown"]
    keys = {*lab.client.keys("provision"), *lab.client.keys("teardown")}
    (fleet_key,) = keys
    ((where, job, manifest),) = lab.client.of("transfer")
    assert (where, job.destination.url, manifest) == (fleet_key, "s3://b/y/", "/m.parquet")
    # It may plan again for its job.
    assert lab.client.of("provision") == [(fleet_key, job)]


def test_a_plan_without_work_has_no_volume(lab: Lab) -> None:
    lab.client.is_unchanged = True
    assert lab.materialize(asset()).output_for_node("paris.plan")["volume_gb"] == 0


def test_provision_waits_for_the_end_of_another_fleet(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    lab.client.full = [TooManyFleets.of("prod", 2, ("aa", "bb"))] * 3
    assert lab.materialize(asset()).success
    said = capfd.readouterr().err
    assert said.count("waiting: deployment 'prod' has reached max_active_fleets") == 1


def test_every_op_has_the_same_run_identity(lab: Lab) -> None:
    result = lab.materialize(asset(key_prefix=["lake"]))
    (identity,) = set(lab.client.of("identity"))
    assert (identity.deployment, identity.owner) == ("test", "lake/paris")
    assert (identity.run, identity.group) == (result.run_id, "")


def test_the_materialization_has_volume_rate_and_cost(lab: Lab) -> None:
    lab.client.result = samples.result(copied_earlier=1, manifest_uri="file:///manifest")
    (event,) = lab.materialize(asset()).get_asset_materialization_events()
    told: dict[str, Any] = {
        name: value.value for name, value in event.materialization.metadata.items()
    }
    assert told["dagster/uri"] == "s3://b/y/"
    assert told["skyplane/source"] == "s3://a/x/"
    assert (told["skyplane/objects"], told["skyplane/bytes"]) == (30, 1000)
    assert told["skyplane/copied_earlier"] == 1
    assert (told["skyplane/seconds"], told["skyplane/throughput_gbps"]) == (2.0, 0.5)
    assert told["skyplane/planned_egress_cost_usd"] == 1.0
    assert told["skyplane/planned_vm_cost_usd"] == 2.0
    assert told["skyplane/planned_cost_usd"] == 6.0
    assert not [name for name in told if "cost" in name and "planned" not in name]
    assert told["skyplane/gateways"].startswith("gateways are processes of this machine")
    assert told["skyplane/manifest"] == "file:///manifest"
    assert told["skyplane/plan"]["dst"] == "aws:eu-west-3"
    assert told["skyplane/facts"]["outputs"][0]["namespace"] == "s3://b"


def test_a_failed_transfer_fails_the_run_and_the_hook_tears_down(lab: Lab) -> None:
    lab.client.fail("transfer", TransferFailed("2 of 3 objects failed", is_permanent=False))
    result = lab.materialize(asset())
    assert not result.success
    assert states(result) == {"plan": "SUCCESS", "provision": "SUCCESS", "transfer": "FAILURE"}
    assert failure(result, "transfer").description == "transfer-failed: 2 of 3 objects failed"
    (fleet_key,) = lab.client.keys("provision")
    assert lab.client.keys("teardown") == [fleet_key]
    assert result.get_asset_materialization_events() == []


def test_a_failed_transfer_has_the_resume_handle_in_its_metadata(lab: Lab) -> None:
    left = samples.result(failed=25, resume_handle="skyplane-resume:abc")
    lab.client.fail("transfer", TransferFailed("2 of 3 objects failed", result=left))
    said = failure(lab.materialize(asset()), "transfer").metadata
    assert said["skyplane/error"].value["code"] == "transfer-failed"
    assert said["skyplane/result"].value["resume_handle"] == "skyplane-resume:abc"


def test_a_failed_transfer_logs_a_command_that_finds_its_fleet(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    left = samples.result(failed=25, resume_handle="skyplane-resume:abc")
    lab.client.fail("transfer", TransferFailed("2 of 3 objects failed", result=left))
    lab.resource = type(lab.resource)(
        name=lab.resource.name,
        provisioner="cloud",
        clouds_file="clouds.yaml",
        deployment="prod",
    )
    lab.materialize(asset())
    command = "skyplane-orch resume RESULT.json --provisioner cloud --clouds clouds.yaml"
    assert f"{command} --deployment prod" in capfd.readouterr().err


@pytest.mark.parametrize("error", [RuntimeError("a bug"), dg.DagsterExecutionInterruptedError()])
def test_an_unexpected_error_in_an_op_leaves_no_fleet(lab: Lab, error: BaseException) -> None:
    lab.client.fail("transfer", error)
    assert not lab.materialize(asset()).success
    assert lab.client.verbs.count("teardown") == 1


def test_the_hook_tears_down_the_fleet_of_the_partition(lab: Lab) -> None:
    days = dg.StaticPartitionsDefinition(["2026-01-01"])
    lab.client.fail("transfer", StoreUnavailable("later"))
    made = asset(partitions_def=days, include=["{partition_key}/*"])
    lab.materialize(made, partition_key="2026-01-01")
    keys = {*lab.client.keys("provision"), *lab.client.keys("teardown")}
    assert len(keys) == 1


def test_the_hook_uses_the_resource_key_of_the_asset(lab: Lab) -> None:
    lab.client.fail("transfer", StoreUnavailable("later"))
    lab.materialize(asset(resource_key="other"), other=lab.resource)
    assert lab.client.verbs[-1] == "teardown"


@pytest.mark.parametrize(
    ("verb", "error", "step"),
    [
        ("check", NotFound("no bucket"), "plan"),
        ("plan", PlanInfeasible("too fast"), "plan"),
        ("provision", ProvisionFailed("no port"), "provision"),
    ],
)
def test_a_failure_before_the_transfer_ends_the_run(
    lab: Lab, verb: str, error: Exception, step: str
) -> None:
    lab.client.fail(verb, error)
    result = lab.materialize(asset())
    assert states(result)[step] == "FAILURE"
    assert failure(result, step).description.startswith(f"{getattr(error, 'code', '')}: ")
    assert "transfer" not in lab.client.verbs
    # What provision could not undo itself is looked for once more.
    assert lab.client.verbs.count("teardown") == (step == "provision")


def test_a_teardown_that_leaves_something_fails_the_run(lab: Lab) -> None:
    lab.client.fail("teardown", *[TeardownIncomplete("gateway 7 is still there")] * 2)
    result = lab.materialize(asset())
    assert not result.success
    assert states(result)["teardown"] == "FAILURE"
    # The hook tries once more, and its failure changes nothing.
    assert lab.client.verbs.count("teardown") == 2


def test_the_teardown_knows_a_fleet_that_was_brought_up_again(lab: Lab) -> None:
    lab.client.moved_to = "ffee"
    assert lab.materialize(asset()).success
    assert lab.client.keys("teardown") == ["ffee"]


def test_a_retry_joins_the_transfer_on_the_same_fleet(lab: Lab) -> None:
    lab.client.fail("transfer", StoreUnavailable("try again"))
    result = lab.materialize(asset(retry_policy=dg.RetryPolicy(max_retries=1)))
    assert result.success
    tries = lab.client.of("transfer")
    assert len(tries) == 2
    assert tries[0] == tries[1]
    assert lab.client.verbs.count("provision") == lab.client.verbs.count("teardown") == 1


def test_the_last_retry_is_followed_by_the_teardown(lab: Lab) -> None:
    lab.client.fail("transfer", StoreUnavailable("once"), StoreUnavailable("twice"))
    result = lab.materialize(asset(retry_policy=dg.RetryPolicy(max_retries=1)))
    assert not result.success
    assert lab.client.verbs[-2:] == ["identity", "teardown"]
    assert lab.client.verbs.count("teardown") == 1
    assert failure(result, "transfer").description == "store-unavailable: twice"


def test_a_permanent_error_is_not_retried(lab: Lab) -> None:
    lab.client.fail("plan", PlanInfeasible("too fast"))
    lab.materialize(asset(retry_policy=dg.RetryPolicy(max_retries=3)))
    assert lab.client.verbs.count("plan") == 1
    lab.client.fail("transfer", TransferFailed("no", is_permanent=True))
    lab.materialize(asset(retry_policy=dg.RetryPolicy(max_retries=3)))
    assert lab.client.verbs.count("transfer") == lab.client.verbs.count("teardown") == 1


def test_the_definition_has_all_given_properties() -> None:
    upstream = dg.AssetSpec("sydney")
    made = asset(
        key_prefix=["lake"],
        deps=[upstream, "other/one", dg.AssetKey("third"), asset()],
        group_name="replication",
        description="images",
        owners=["data@example.com"],
        tags={"tier": "gold"},
        metadata={"contract": "v1"},
        automation_condition=dg.AutomationCondition.eager(),
        objective=MinimizeCost(2.0),
    )
    (spec,) = made.specs
    assert spec.key == dg.AssetKey(["lake", "paris"])
    before = {dep.asset_key.to_user_string() for dep in spec.deps}
    assert before == {"other/one", "paris", "sydney", "third"}
    assert (spec.group_name, spec.description) == ("replication", "images")
    assert spec.automation_condition == dg.AutomationCondition.eager()
    assert (spec.owners, spec.tags["tier"]) == (["data@example.com"], "gold")
    assert spec.kinds == {"skyplane", "s3"}
    other = build_skyplane_transfer_asset("x", source="az://a/c/", destination="gs://b/")
    assert other.specs_by_key[other.key].kinds == {"skyplane", "azure", "gcs"}
    assert spec.metadata["dagster/uri"] == "s3://b/y/"
    assert spec.metadata["contract"] == "v1"


def test_several_assets_live_in_one_code_location() -> None:
    one = asset()
    two = build_skyplane_transfer_asset(
        "paris-2", source="s3://a/", destination="gs://c/", deps=[one], resource_key="other"
    )
    definitions = dg.Definitions(
        assets=[one, two], resources={"skyplane": _resource(), "other": _resource()}
    )
    definitions.get_repository_def().load_all_definitions()


def test_each_destination_has_an_asset_with_its_own_steps() -> None:
    made = build_skyplane_transfer_assets(
        {"paris": "s3://b/y/", "iowa": Location("gs://c/", region="gcp:us-central1")},
        source="s3://a/x/",
        key_prefix=["lake"],
        deps=["sydney"],
        manifest="s3://m/{asset_key}.parquet",
        conflict="skip",
    )
    assert [one.key.path for one in made] == [["lake", "paris"], ["lake", "iowa"]]
    assert {one.key.path[-1]: one.specs_by_key[one.key].kinds for one in made} == {
        "paris": {"skyplane", "s3"},
        "iowa": {"skyplane", "s3", "gcs"},
    }
    ops = [op.name for one in made for op in one.node_def.iterate_op_defs()]
    assert len(set(ops)) == 2 * len(STEPS)
    defs = dg.Definitions(assets=made, resources={"skyplane": _resource()})
    defs.get_repository_def().load_all_definitions()


def test_each_of_several_assets_has_its_own_manifest(lab: Lab) -> None:
    ends = {"paris": "s3://b/y/", "iowa": "gs://c/"}
    made = build_skyplane_transfer_assets(
        ends, source="s3://a/x/", manifest="s3://m/{asset_key}.parquet", key_prefix=["lake"]
    )
    for one in made:
        assert lab.materialize(one).success
    assert [(job.destination.url, manifest) for _, job, manifest in lab.client.of("transfer")] == [
        ("s3://b/y/", "s3://m/lake/paris.parquet"),
        ("gs://c/", "s3://m/lake/iowa.parquet"),
    ]
    assert len(set(lab.client.keys("provision"))) == 2
    with pytest.raises(ConfigurationInvalid, match="manifest"):
        build_skyplane_transfer_assets(ends, source="s3://a/x/", manifest="s3://m/one.parquet")


def _resource() -> dg.ResourceDefinition:
    return dg.ResourceDefinition.hardcoded_resource(None)


def test_a_manifest_of_no_known_format_fails_when_the_code_is_loaded() -> None:
    with pytest.raises(ConfigurationInvalid, match=r"cannot be written as \.json"):
        asset(manifest="s3://m/{partition_key}.json")


def test_an_asset_has_a_description_and_depends_on_its_source() -> None:
    """As those of `skyplane_assets` have."""
    job = TransferJob(Location("s3://a/x/"), Location("s3://b/y/"))
    expected = DagsterSkyplaneTranslator().get_asset_spec(SkyplaneTranslatorData("paris", job))
    (spec,) = asset().specs
    assert spec.description == expected.description == "A copy of s3://a/x/ at s3://b/y/."
    assert list(spec.deps) == list(expected.deps)
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["s3", "a", "x"])]
    assert spec.metadata["skyplane/source"] == expected.metadata["skyplane/source"]


def test_given_dependencies_replace_that_on_the_source() -> None:
    (spec,) = asset(deps=[]).specs
    assert not list(spec.deps)
    (spec,) = asset(deps=["sydney"]).specs
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey("sydney")]


@pytest.mark.parametrize(
    ("condition", "requested"),
    [
        (dg.AutomationCondition.on_cron("* * * * *"), 1),
        (dg.AutomationCondition.missing(), 1),
        (None, 0),
    ],
    ids=["cron", "a condition without dependencies", "none"],
)
def test_a_condition_does_not_wait_for_events_of_the_source(
    condition: dg.AutomationCondition[Any] | None, requested: int
) -> None:
    """Nothing observes the asset that stands for the source by default."""
    definitions = dg.Definitions(
        assets=[asset(automation_condition=condition)], resources={"skyplane": _resource()}
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with dg.DagsterInstance.ephemeral() as instance:
        first = dg.evaluate_automation_conditions(definitions, instance, evaluation_time=now)
        second = dg.evaluate_automation_conditions(
            definitions, instance, cursor=first.cursor, evaluation_time=now + timedelta(minutes=2)
        )
    assert second.total_requested == requested
