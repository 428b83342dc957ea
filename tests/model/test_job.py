from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Policy,
    TransferJob,
)
from skyplane_orchestration.model.location import Location

SOURCE, DESTINATION = Location("s3://src/p/"), Location("gs://dst/q/")

positive = st.floats(min_value=1e-6, max_value=1e9)
texts = st.lists(st.text(max_size=20), max_size=3)
globs = st.lists(st.sampled_from(["aws:*", "*", "gcp:us-east1", "azure*"]), max_size=3)
jobs = st.builds(
    TransferJob,
    st.builds(
        Location,
        st.text(max_size=30).map(lambda key: f"s3://bucket/{key}"),
        st.sampled_from(["", "aws:eu-west-3"]),
        st.sampled_from(["", "https://minio.example"]),
        st.sampled_from(["", "profile:prod"]),
        st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    ),
    st.just(DESTINATION),
    st.one_of(
        st.none(),
        st.builds(MinimizeCost, positive, st.booleans()),
        st.builds(MaximizeThroughput, max_usd_per_gb=positive),
        st.builds(MaximizeThroughput, max_cost_usd=positive),
        st.builds(Deadline, positive),
    ),
    recursive=st.booleans(),
    include=texts,
    exclude=texts,
    conflict=st.sampled_from(
        ["fail", "skip", "replace", "replace-if-newer", "replace-if-different"]
    ),
    publish_last=texts,
    verify=st.sampled_from(["stored", "reread", "none"]),
    allow_empty=st.booleans(),
    allow_failed=st.booleans(),
    limits=st.builds(
        Limits,
        st.none() | st.integers(1, 100),
        st.dictionaries(st.sampled_from(["aws", "gcp"]), st.text(max_size=5)),
        st.none() | st.integers(0, 9),
        st.integers(5, 512),
    ),
    policy=st.builds(Policy, globs, globs),
    volume_gb=st.none() | positive,
    objects=st.none() | st.integers(0, 10**12),
)


@settings(max_examples=30)
@given(jobs)
def test_a_job_survives_json(job: TransferJob) -> None:
    again = TransferJob.from_dict(json.loads(json.dumps(job.to_dict())))
    assert again == job
    assert hash(again) == hash(job)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "5", True, [1]])
def test_time_has_a_value_from_zero(value: Any) -> None:
    with pytest.raises(ConfigurationInvalid, match="value_of_time_usd_per_hour"):
        MinimizeCost(value_of_time_usd_per_hour=value)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "5", None, True, [1]])
def test_an_objective_needs_a_number_above_zero(value: Any) -> None:
    for make in (
        # Without a floor it has that of the direct path.
        lambda v: MinimizeCost(0.0 if v is None else v),
        Deadline,
        lambda v: MaximizeThroughput(max_usd_per_gb=v),
        lambda v: MaximizeThroughput(max_cost_usd=v),
    ):
        with pytest.raises(ConfigurationInvalid):
            make(value)


def test_a_ceiling_is_one_of_two() -> None:
    with pytest.raises(ConfigurationInvalid, match="either"):
        MaximizeThroughput()
    with pytest.raises(ConfigurationInvalid, match="either"):
        MaximizeThroughput(max_usd_per_gb=1.0, max_cost_usd=1.0)


@pytest.mark.parametrize(
    "bad",
    [
        {"chunk_mib": 4},
        {"chunk_mib": 513},
        {"chunk_mib": 16.0},
        {"instance_limit": 0},
        {"instance_limit": True},
    ],
)
def test_invalid_limits_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationInvalid, match=next(iter(bad))):
        Limits(**bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"volume_gb": 0},
        {"exclude": [1]},
        {"publish_last": "_SUCCESS"},
    ],
)
def test_a_job_refuses_invalid_values(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationInvalid):
        TransferJob(SOURCE, DESTINATION, **bad)


def test_a_single_text_is_no_list_of_globs() -> None:
    """`include="*.csv"` would let everything through: `*` is one of its letters."""
    with pytest.raises(ConfigurationInvalid, match=r"include must be a list.*'\*\.csv'"):
        TransferJob(SOURCE, DESTINATION, include="*.csv")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationInvalid, match="exclude"):
        Policy(exclude_regions="aws:*")  # type: ignore[arg-type]
    listed = TransferJob(SOURCE, DESTINATION, include=["*.csv"])  # type: ignore[arg-type]
    assert listed.include == ("*.csv",)


def test_strict_metadata_is_refused_for_files() -> None:
    bucket, files = Location("s3://a/x/"), Location("/data/out/")
    assert TransferJob(files, bucket, strict_metadata=True).strict_metadata
    with pytest.raises(ConfigurationInvalid, match="strict_metadata"):
        TransferJob(bucket, files, strict_metadata=True)


def test_a_document_with_an_unknown_field_of_a_policy_is_refused() -> None:
    document = TransferJob(Location("s3://a/"), DESTINATION).to_dict()
    document["policy"] = {"exclude_region": ["aws:*"]}
    with pytest.raises(ConfigurationInvalid, match="has no exclude_region"):
        TransferJob.from_dict(document)


@pytest.mark.parametrize("glob", ["", " ", "azure", "azure:*,gcp:*", " azure:*", "azure:*\n"])
@pytest.mark.parametrize("name", ["allow_regions", "exclude_regions"])
def test_a_glob_that_is_no_glob_of_regions_is_refused(name: str, glob: str) -> None:
    """Such a rule would be lost in silence."""
    with pytest.raises(ConfigurationInvalid, match=f"{name} must be a list of globs of region"):
        Policy(**{name: ["aws:*", glob]})  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["//x", "", "[b-a]", "a/[b-a]/"])
def test_deletes_need_patterns_that_can_match(pattern: str) -> None:
    ends = (Location("s3://a/"), DESTINATION)
    with pytest.raises(ConfigurationInvalid, match="no key can match the pattern"):
        TransferJob(*ends, delete=True, exclude=("*.csv", pattern))
    for fine in ({"allow_unmatched_patterns": True}, {"delete": False}):
        more: dict[str, Any] = {"delete": True, **fine}
        assert TransferJob(*ends, exclude=(pattern,), **more).exclude == (pattern,)
