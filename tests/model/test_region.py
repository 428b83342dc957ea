from __future__ import annotations

import pytest

from skyplane_orchestration.errors import InvalidLocation
from skyplane_orchestration.model.location import Region, nearest_names, parse_region_tag

KNOWN = ("aws:us-east-1", "aws:us-east-2", "gcp:us-east1", "gcp:europe-west4", "azure:eastus")


@pytest.mark.parametrize("tag", [*KNOWN, "local:here"])
def test_a_tag_survives_parsing(tag: str) -> None:
    region = parse_region_tag(tag)
    assert str(region) == region.tag == tag
    assert region.is_local == tag.startswith("local")


def test_surrounding_space_is_no_part_of_a_tag() -> None:
    assert parse_region_tag(" aws:us-east-1\n") == Region("aws", "us-east-1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("us-east-1", "cloud:region"),
        ("", "cloud:region"),
        ("aws:", "lower-case"),
        ("aws:US-EAST-1", "lower-case"),
        ("aws:us east", "lower-case"),
        ("aws:us-east-1\n\n:x", "lower-case"),
        ("ibm:us-east", "unknown cloud"),
    ],
)
def test_an_invalid_region_tag_is_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(InvalidLocation, match=says):
        parse_region_tag(text)


def test_a_region_built_by_hand_is_checked_too() -> None:
    with pytest.raises(InvalidLocation):
        Region("aws", "../etc")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("aws:us-east1", "aws:us-east-1"),
        ("gcp:europe-west-4", "gcp:europe-west4"),
        ("gcp:us-east1-b", "gcp:us-east1"),
        ("amazon:us-east-2", "aws:us-east-2"),
    ],
)
def test_the_nearest_name_comes_first(wrong: str, right: str) -> None:
    assert nearest_names(wrong, KNOWN)[0] == right


def test_nothing_is_offered_when_nothing_is_near() -> None:
    assert nearest_names("zzz:qqqqqq", KNOWN) == []
