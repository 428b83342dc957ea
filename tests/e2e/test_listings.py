"""How often a command lists its source, by the requests that reach the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_cli_cp import answer_of, orch_here
from tests.faults import http_proxy

if TYPE_CHECKING:
    from tests.e2e.conftest import Home, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

OBJECTS = {f"{number:02}": b"%d" % number for number in range(12)}


@pytest.fixture
def source(servers: tuple[S3Server, S3Server]) -> Iterator[http_proxy.FaultProxy]:
    with http_proxy.running(servers[0].endpoint) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("name", "command", "listings"),
    [
        ("copy", "cp -r", 1),
        ("filters", "cp -r --include 0* --last 05", 1),
        ("sync", "sync", 1),
        # A listing after all copies tells which objects to delete.
        ("delete", "sync --delete", 2),
        # The lead is in another process.
        ("gateways", "cp -r --gateways always", 2),
    ],
)
def test_the_steps_of_a_command_share_one_listing_of_the_source(
    name: str,
    command: str,
    listings: int,
    home: Home,
    servers: tuple[S3Server, S3Server],
    source: http_proxy.FaultProxy,
) -> None:
    here, there = servers
    near, far = here.make_bucket(f"listings-{name}-a"), there.make_bucket(f"listings-{name}-b")
    here.fill(near, "p/", OBJECTS)
    there.fill(far, "q/", {key: OBJECTS[key] for key in list(OBJECTS)[:5]})
    ends = (f"s3://{near}/p/", f"s3://{far}/q/")
    endpoints = ("--src-endpoint", source.url, "--dst-endpoint", there.endpoint)
    result = answer_of(orch_here(home, *command.split(), *ends, *endpoints, "--json"))
    assert (result["failed"], result["skipped"]) == (0, 5 if "sync" in command else 0)
    assert result["copied"] == {"filters": 10, "sync": 7, "delete": 7}.get(name, 12)
    assert there.digests(far, "q/").keys() == OBJECTS.keys() - (
        {"10", "11"} if name == "filters" else set()
    )
    # A literal start of `--include` narrows the listing.
    begins = "prefix=p%2F0&" if name == "filters" else "prefix=p%2F&"
    targets = [each.target for each in source.log.exchanges if begins in each.target]
    # An end is tried with a listing of one object, which finds no access in time.
    targets = [target for target in targets if "max-keys=1&" not in target]
    begun = [target for target in targets if "start-after" not in target]
    assert len(begun) == listings, targets
    # A comparison ends at the first object to copy. The plan continues the same listing.
    assert targets == begun
