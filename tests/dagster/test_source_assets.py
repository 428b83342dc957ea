"""Observable source assets, with real files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_source_asset,
    build_skyplane_transfer_asset,
)
from skyplane_orchestration.errors import NotFound
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab

KEY = dg.AssetKey(["lake", "sydney"])


def source(place: str, **options: Any) -> dg.AssetsDefinition:
    return build_skyplane_source_asset("sydney", place, key_prefix=["lake"], **options)


def observe(
    made: dg.AssetsDefinition, resource: SkyplaneResource, instance: dg.DagsterInstance
) -> dg.ExecuteInProcessResult:
    job = dg.define_asset_job("observe", [made.key])
    definitions = dg.Definitions(assets=[made], jobs=[job], resources={"skyplane": resource})
    return definitions.resolve_job_def("observe").execute_in_process(
        instance=instance, raise_on_error=False
    )


def observation(result: dg.ExecuteInProcessResult) -> dg.AssetObservation:
    (event,) = result.get_asset_observation_events()
    return event.asset_observation_data.asset_observation


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_bytes(b"1")
    (tmp_path / "b.csv").write_bytes(b"22")
    return tmp_path


def test_an_observation_has_a_version_that_follows_the_objects(folder: Path) -> None:
    made, resource = source(f"{folder}/"), SkyplaneResource()
    with dg.DagsterInstance.ephemeral() as instance:
        seen = [observation(observe(made, resource, instance)) for _ in range(2)]
        (folder / "c.csv").write_bytes(b"333")
        seen.append(observation(observe(made, resource, instance)))
    versions = [one.tags["dagster/data_version"] for one in seen]
    assert versions[0] == versions[1] != versions[2]
    assert seen[0].asset_key == KEY
    assert {name: value.value for name, value in seen[2].metadata.items()} == {
        "dagster/uri": f"file://{folder}/",
        "skyplane/objects": 3,
        "skyplane/bytes": 6,
    }


def test_the_job_of_the_place_is_passed_on(lab: Lab) -> None:
    made = source("s3://a/x/", recursive=False, include=["*.csv"], exclude=["b.*"])
    with dg.DagsterInstance.ephemeral() as instance:
        result = observe(made, lab.resource, instance)
    assert lab.client.of("source_version") == [
        (Location("s3://a/x/"), {"recursive": False, "include": ["*.csv"], "exclude": ["b.*"]})
    ]
    (identity,) = lab.client.of("identity")
    assert (identity.owner, identity.run) == ("lake/sydney", result.run_id)


def test_a_place_that_is_missing_fails_the_observation(lab: Lab) -> None:
    lab.client.fail("source_version", NotFound("there is no bucket"))
    with dg.DagsterInstance.ephemeral() as instance:
        result = observe(source("s3://a/x/"), lab.resource, instance)
    assert not result.success
    (event,) = result.get_step_failure_events()
    said = event.step_failure_data.user_failure_data
    assert said is not None
    assert said.description == "not-found: there is no bucket"


def test_a_copy_is_downstream_of_the_place(lab: Lab) -> None:
    above = source("s3://a/x/")
    copy = build_skyplane_transfer_asset(
        "paris", source="s3://a/x/", destination="s3://b/y/", deps=[above]
    )
    with dg.DagsterInstance.ephemeral() as instance:
        version = observation(observe(above, lab.resource, instance)).tags["dagster/data_version"]
        (event,) = lab.materialize(copy, instance=instance).get_asset_materialization_events()
    assert [dep.asset_key for dep in copy.specs_by_key[copy.key].deps] == [KEY]
    assert (event.materialization.tags or {})["dagster/input_data_version/lake/sydney"] == version


def test_the_definition_has_all_given_properties() -> None:
    hourly = dg.AutomationCondition.on_cron("@hourly")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = source(
            "az://account/container/x/",
            group_name="lake",
            description="images",
            automation_condition=hourly,
            owners=["data@example.com"],
            tags={"tier": "gold"},
            metadata={"contract": "v1"},
        )
    assert made.is_observable
    (spec,) = made.specs
    assert (spec.key, spec.group_name, spec.description) == (KEY, "lake", "images")
    assert (spec.owners, spec.tags["tier"], spec.kinds) == (["data@example.com"], "gold", {"azure"})
    assert spec.metadata["dagster/uri"] == "az://account/container/x/"
    assert spec.metadata["contract"] == "v1"
    assert spec.automation_condition == hourly
