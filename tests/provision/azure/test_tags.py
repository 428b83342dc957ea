"""Tags of Azure, read back and changed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.provision.azure.samples import FLEET

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.azure import tags


def test_a_fleet_is_read_from_its_tags() -> None:
    fleet = replace(FLEET, deployment="prod's \u00fc=*", processes=3)
    assert tags.fleet_of(tags.for_fleet(fleet, {"team": "data"})) == fleet


def test_numbers_changed_by_hand_are_past_the_hard_end() -> None:
    named = tags.for_fleet(FLEET, {}) | {"skyplane:hard-end": "soon", "skyplane:processes": ""}
    found = tags.fleet_of(named)
    assert found == replace(FLEET, hard_end_unix_s=0, processes=1)


@pytest.mark.parametrize("missing", ["skyplane:fleet", "skyplane:deployment"])
def test_without_our_tags_it_is_none_of_ours(missing: str) -> None:
    named = tags.for_fleet(FLEET, {})
    del named[missing]
    assert tags.fleet_of(named) is None
    assert tags.fleet_of(None) is None


def test_our_tags_win() -> None:
    assert tags.for_fleet(FLEET, {"skyplane:fleet": "x"})["skyplane:fleet"] == FLEET.fleet_key


def test_a_deployment_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="longer than the 256 characters"):
        tags.for_fleet(replace(FLEET, deployment="d" * 257), {})


def test_a_quote_in_a_deployment_stays_in_the_filter() -> None:
    assert tags.filter_of_deployment("it's").endswith("tagValue eq 'it''s'")
