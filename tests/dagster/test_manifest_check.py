"""The check of a place against its manifest, and the data version that takes it into account."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from tests.storage.manifest.places import commit
from tests.transfer import samples

from skyplane_orchestration import Client
from skyplane_orchestration.dagster import SkyplaneResource, build_skyplane_manifest_check
from skyplane_orchestration.dagster.metadata import with_manifest
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab


@dg.asset
def lake() -> None:
    """An asset that some other code makes."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).write_text("1")
    commit(Location(f"{tmp_path}/"), ["a", "b"])
    return tmp_path


def evaluation(place: Path, **more: Any) -> dg.AssetCheckEvaluation:
    check = build_skyplane_manifest_check(lake, f"{place}/", **more)
    definitions = dg.Definitions(
        assets=[lake], asset_checks=[check], resources={"skyplane": SkyplaneResource()}
    )
    result = definitions.resolve_implicit_global_asset_job_def().execute_in_process()
    (found,) = result.get_asset_check_evaluations()
    return found


def test_a_place_that_is_as_its_manifest_says(place: Path) -> None:
    found = evaluation(place)
    assert found.passed
    assert (found.check_name, found.asset_key) == ("manifest_holds", lake.key)
    assert found.metadata["skyplane/rows"].value == 2


def test_an_object_that_is_gone_fails_it(place: Path) -> None:
    (place / "a").unlink()
    found = evaluation(place, name="whole")
    assert not found.passed
    assert found.check_name == "whole"
    assert "missing: a" in str(found.description)
    assert found.metadata["skyplane/findings"].value == 1


def test_a_place_without_a_manifest_fails_the_op(tmp_path: Path) -> None:
    with pytest.raises(dg.Failure, match=r"not-found: .* has no manifest"):
        evaluation(tmp_path / "none")


JOB = TransferJob(Location("s3://lake/"), Location("s3://b/y/"), conflict="replace-if-different")


def test_the_digest_of_the_manifest_is_that_of_the_source(lab: Lab, place: Path) -> None:
    manifest = Client().manifest(Location(f"{place}/"))
    lab.client.place_manifest = manifest
    client: Any = lab.client
    same = samples.result(source_digest=manifest.source_digest)
    assert with_manifest(client, JOB, same) == same
    other = with_manifest(client, JOB, replace(same, source_digest="abc"))
    assert other.source_digest not in ("abc", manifest.source_digest, "")


def test_what_has_no_manifest_has_the_digest_of_its_source(lab: Lab) -> None:
    client: Any = lab.client
    result = samples.result(source_digest="abc")
    assert with_manifest(client, JOB, result) == result
    assert client.of("manifest") == [JOB.destination]
    assert with_manifest(client, replace(JOB, conflict="skip"), result) == result
    assert with_manifest(client, JOB, samples.result()) == samples.result()
    assert len(client.of("manifest")) == 1


@pytest.mark.e2e
def test_of_real_copies(tmp_path: Path) -> None:
    """The digest of the manifest is that of the listing, until the place has other objects too."""
    source, client = tmp_path / "src", Client()
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_text(name)
    job = replace(JOB, source=Location(f"{source}/"), destination=Location(f"{tmp_path}/dst/"))
    first = client.run(job)
    assert first.source_digest
    assert with_manifest(client, job, first) == first
    (source / "b").unlink()
    second = client.run(job)
    assert second.source_digest == client.source_version(job.source).digest
    assert with_manifest(client, job, second).source_digest != second.source_digest
