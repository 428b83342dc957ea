"""Labels and descriptions: what is written can be read again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.provision.gcp.samples import FLEET, REGION

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.gcp import tags
from skyplane_orchestration.provision.gcp.names import instance_name, network_tag
from strict_clouds.gce_instances import check_labels

LONGEST_REGION = "gcp:northamerica-northeast1"


@given(st.text(max_size=5))
def test_labels_are_read_back(deployment: str) -> None:
    fleet = replace(FLEET, deployment=deployment or "x")
    labels = tags.for_fleet(fleet, {"team": "data"}, {tags.INSTANCE: f"{REGION}/0"})
    check_labels(labels)
    assert tags.fleet_of(labels) == fleet
    assert tags.unescaped(labels[tags.INSTANCE]) == f"{REGION}/0"


@given(st.text(max_size=15), st.text(max_size=15))
def test_different_texts_have_different_labels(one: str, other: str) -> None:
    assert (tags.escaped(one) == tags.escaped(other)) == (one == other)


@given(st.text())
def test_descriptions_are_read_back(deployment: str) -> None:
    fleet = replace(FLEET, deployment=deployment or "x")
    assert tags.described(tags.description(fleet, REGION)) == (fleet, REGION)


@pytest.mark.parametrize("text", ["", "mine", "[]", "{}", '{"skyplane_fleet": 1}', '"text"'])
def test_a_foreign_description_is_none_of_ours(text: str) -> None:
    assert tags.described(text) is None


def test_a_deployment_that_is_too_long_is_refused() -> None:
    tags.for_fleet(replace(FLEET, deployment="d" * 63), {})
    for deployment in ("d" * 64, "D" * 22):
        with pytest.raises(ConfigurationInvalid, match="63 characters of a label"):
            tags.for_fleet(replace(FLEET, deployment=deployment), {})


def test_labels_that_cannot_be_read_mean_the_past() -> None:
    labels = tags.for_fleet(FLEET, {}) | {"skyplane_hard_end": "soon", "skyplane_processes": ""}
    found = tags.fleet_of(labels)
    assert found is not None
    assert (found.hard_end_unix_s, found.processes) == (0, 1)
    assert tags.fleet_of({"skyplane_fleet": "0"}) is None


def test_names_fit_into_63_characters() -> None:
    rule = network_tag(FLEET.fleet_key, LONGEST_REGION) + "-7600-7663"
    name = instance_name(FLEET.fleet_key, f"{LONGEST_REGION}/127", 15)
    assert max(len(rule), len(name)) <= 63
    assert name == f"skyplane-{FLEET.fleet_key[:20]}-northamerica-northeast1-127-15"
