"""Tags: every text survives, and nothing that AWS refuses is sent."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.provision.aws.samples import FLEET

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.aws import tags
from skyplane_orchestration.provision.fleet.machines import FleetTags

#: AWS writes names of regions and of its own tags with it.
RESERVED = "aws:"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_every_text_survives_in_the_alphabet_of_aws(text: str) -> None:
    value = tags.escaped(text)
    assert tags.unescaped(value) == text
    assert re.fullmatch(r"[A-Za-z0-9 _.:/=+\-@]*", value)


@pytest.mark.parametrize("text", ["aws:prod", "a*b?", "a=41", "=", "日本", "", "prod eu"])
def test_no_value_has_a_wildcard_or_a_reserved_beginning(text: str) -> None:
    value = tags.escaped(text)
    assert tags.unescaped(value) == text
    assert not value.startswith(RESERVED)
    assert not set("*?") & set(value)


def test_a_fleet_survives() -> None:
    fleet = FleetTags("ab", "aws:prod*", 3, 10, 20, 4)
    written = tags.as_mapping(tags.for_fleet(fleet, {"team": "data"}))
    assert tags.fleet_of(written) == fleet
    assert (written["team"], written["Name"]) == ("data", "skyplane ab")


def test_things_without_our_tags_belong_to_no_fleet() -> None:
    written = tags.as_mapping(tags.for_fleet(FLEET, {}))
    for name in (tags.FLEET, tags.DEPLOYMENT):
        assert tags.fleet_of({**written, name: ""}) is None
        assert tags.fleet_of({key: text for key, text in written.items() if key != name}) is None


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "²"])
def test_a_time_that_cannot_be_read_has_passed(text: str) -> None:
    written = tags.as_mapping(tags.for_fleet(FLEET, {}))
    found = tags.fleet_of({**written, "skyplane:hard-end": text, "skyplane:processes": text})
    assert found is not None
    assert (found.hard_end_unix_s, found.processes) == (0, 1)


def test_a_deployment_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="deployment"):
        tags.for_fleet(FleetTags("ab", "é" * 100, 0, 0, 0), {})


@pytest.mark.parametrize(
    "user_tags",
    [
        {"": "x"},
        {"aws:x": "y"},
        {"x": "aws:y"},
        {"skyplane:fleet": "x"},
        {"x" * 129: "y"},
        {"x": "y" * 257},
        {"x": "a*b"},
        {f"x{number}": "y" for number in range(41)},
    ],
)
def test_user_tags_that_aws_or_we_cannot_have_are_refused(user_tags: dict[str, str]) -> None:
    with pytest.raises(ConfigurationInvalid, match="user_tags of aws"):
        tags.check_user_tags(user_tags)


def test_user_tags_may_have_letters_of_all_languages() -> None:
    tags.check_user_tags({"équipe": "données 1/2", "cost-centre": "a@b=c", "empty": ""})
