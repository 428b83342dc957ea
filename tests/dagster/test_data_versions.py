"""Data versions are digests of sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.transfer import samples

from skyplane_orchestration.dagster import build_skyplane_transfer_asset
from skyplane_orchestration.dagster.data_versions import data_version_of

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab


def test_a_materialization_has_the_digest_of_its_source(lab: Lab) -> None:
    lab.client.result = samples.result(source_digest="abc")
    made = build_skyplane_transfer_asset("paris", source="s3://a/x/", destination="s3://b/y/")
    (event,) = lab.materialize(made).get_asset_materialization_events()
    tags = event.materialization.tags or {}
    assert tags["dagster/data_version"] == "abc"
    assert tags["dagster/data_version_is_user_provided"] == "true"


def test_an_incomplete_copy_has_no_version_of_its_own() -> None:
    whole = samples.result(source_digest="abc")
    assert data_version_of([samples.result(failed=1, source_digest="abc")]) is None
    assert data_version_of([samples.result(unfinished=1, source_digest="abc")]) is None
    # The listing did not come to its end.
    assert data_version_of([whole, samples.result()]) is None


def test_the_order_of_partitions_counts() -> None:
    one, two = samples.result(source_digest="1"), samples.result(source_digest="2")
    assert data_version_of([one, two]) == data_version_of([one, two])
    assert data_version_of([one, two]) != data_version_of([two, one])
