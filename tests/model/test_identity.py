from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.location import Location

RUN = RunIdentity("prod-eu", "dag", "run-1", "group", 3)
SOURCE = Location("s3://a/b/")
DESTINATION = Location("s3://c/d/", endpoint_url="http://h:1")

#: Changing these strands fleets and transfers of a release that is being replaced.
FLEET = "b86578d63726d161d2e6d3d4b8de905d"
FLEET_REBUILT = "bc3d47877f73d2c57bdcd765a53c6e26"
FLEET_SHARED = "7d2a10ae401ab4944dd6be2b1d358929"
TRANSFER = "2c03474269d1e61886b3fcac6f42bcc8"

OTHERS = [
    dataclasses.replace(RUN, deployment="prod-us"),
    dataclasses.replace(RUN, owner="other"),
    dataclasses.replace(RUN, run="run-2"),
    dataclasses.replace(RUN, group="other"),
    dataclasses.replace(RUN, map_index=4),
]


def test_keys_never_change() -> None:
    assert RUN.fleet_key() == FLEET
    assert RUN.fleet_key(1) == FLEET_REBUILT
    assert RunIdentity("prod-eu", "dag", "run-1", shared="pool").fleet_key() == FLEET_SHARED
    assert RUN.transfer_key(SOURCE, DESTINATION, "rule") == TRANSFER


def test_another_process_computes_the_same() -> None:
    program = (
        "from skyplane_orchestration.model.identity import RunIdentity\n"
        "from skyplane_orchestration.model.location import Location\n"
        "run = RunIdentity('prod-eu', 'dag', 'run-1', 'group', 3)\n"
        "print(run.fleet_key(), run.transfer_key(Location('s3://a/b/'),"
        " Location('s3://c/d/', endpoint_url='http://h:1'), 'rule'))\n"
    )
    for seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert out == [FLEET, TRANSFER]


def test_every_part_counts() -> None:
    fleets = [RUN.fleet_key(), RUN.fleet_key(1), *(other.fleet_key() for other in OTHERS)]
    assert len(set(fleets)) == len(fleets)
    transfers = [
        RUN.transfer_key(SOURCE, DESTINATION, "rule"),
        RUN.transfer_key(SOURCE, DESTINATION, "other rule"),
        RUN.transfer_key(DESTINATION, SOURCE, "rule"),
        RUN.transfer_key(Location("s3://a/c/"), DESTINATION, "rule"),
        RUN.transfer_key(Location("s3://a/b/", endpoint_url="http://h:1"), DESTINATION, "rule"),
        RUN.transfer_key(SOURCE, Location("s3://c/d/", endpoint_url="http://h:2"), "rule"),
        *(other.transfer_key(SOURCE, DESTINATION, "rule") for other in OTHERS),
    ]
    assert len(set(transfers)) == len(transfers)


def test_parts_do_not_run_into_each_other() -> None:
    assert RunIdentity("a", "b", "cd").fleet_key() != RunIdentity("a", "bc", "d").fleet_key()
    assert (
        RunIdentity("a", "b", "c", group="x").fleet_key()
        != RunIdentity("a", "b", "c", shared="x").fleet_key()
    )


def test_groups_share_a_fleet_but_not_a_transfer() -> None:
    runs = [RunIdentity("a", "b", "c", group, 0, "pool") for group in ("x", "y")]
    assert len({run.fleet_key() for run in runs}) == 1
    assert len({run.transfer_key(SOURCE, DESTINATION, "r") for run in runs}) == 2


def test_there_is_no_try_number() -> None:
    names = {field.name for field in dataclasses.fields(RunIdentity)}
    keyed = {"deployment", "owner", "run", "group", "map_index", "shared"}
    assert names == {*keyed, "may_be_repeated"}


def test_region_and_credentials_do_not_change_the_transfer_key() -> None:
    located = Location("s3://a/b/", "aws:eu-west-3", credential_ref="profile:x")
    assert RUN.transfer_key(located, DESTINATION, "rule") == TRANSFER


@pytest.mark.parametrize("name", ["deployment", "owner", "run"])
def test_a_nameless_part_is_refused(name: str) -> None:
    parts = {"deployment": "a", "owner": "b", "run": "c", name: ""}
    with pytest.raises(ConfigurationInvalid, match=name):
        RunIdentity(parts["deployment"], parts["owner"], parts["run"])
