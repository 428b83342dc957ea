"""Quotes of the transfer services: fee, egress of the source, requests; or why there is none."""

from __future__ import annotations

import re
from itertools import product

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.location import KNOWN_CLOUDS
from skyplane_orchestration.planner.pricing.transfer_services import (
    load_services,
    quote_services,
)
from skyplane_orchestration.planner.pricing.way import Way
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb

AWS, GCP, AZURE = "aws:us-east-1", "gcp:us-east4", "azure:eastus"
HERE = "local:this-machine"
#: One place of each cloud.
PLACES = {"aws": AWS, "gcp": GCP, "azure": AZURE, "local": HERE}


def quotes_of(*arguments: object) -> dict[str, Way]:
    found = quote_services(*arguments)  # type: ignore[arg-type]
    assert len({quote.name for quote in found}) == len(found)
    return {quote.name: quote for quote in found}


def test_a_quote_is_fee_and_egress_and_requests(shipped: Grid) -> None:
    quote = quotes_of(shipped, AWS, GCP, 500.0, 2000)["AWS DataSync, enhanced mode"]
    egress = shipped.egress_price(AWS, GCP)
    # 0.015 USD per billed GB and 0.55 USD per run of the task.
    assert quote.service_usd == pytest.approx(500 * 0.015 / 1.073741824 + 0.55)
    assert quote.egress_usd == pytest.approx(500 * egress)
    # 2000 reads and 2 listings at S3, 2000 writes and 2 listings at Cloud Storage.
    requests = 2 * 0.0004 + 2 * 0.005 + 4 * 0.005 / 1000
    assert quote.request_usd == pytest.approx(requests)
    assert quote.total_usd == pytest.approx(
        quote.service_usd + quote.egress_usd + requests  # type: ignore[operator]
    )
    assert quote.usd_per_gb == pytest.approx(usd_per_gib_to_usd_per_gb(0.015) + egress)


def test_without_a_volume_there_are_prices_per_gb_alone(shipped: Grid) -> None:
    for quote in quote_services(shipped, AWS, GCP):
        assert (quote.service_usd, quote.egress_usd, quote.total_usd) == (None, None, None)
        assert (quote.usd_per_gb is None) == bool(quote.reason)


def test_without_a_number_of_objects_requests_are_not_counted(shipped: Grid) -> None:
    quote = quotes_of(shipped, AZURE, GCP, 10.0)["Google Storage Transfer Service, agentless"]
    assert quote.request_usd is None
    assert quote.total_usd == quote.egress_usd


def test_azcopy_writes_blocks_of_8_mib_and_commits_them(shipped: Grid) -> None:
    gb = 3 * 20 * 2**20 / 1e9
    quote = quotes_of(shipped, AWS, AZURE, gb, 3)["AzCopy"]
    # Three objects of 20 MiB: 3 ranged reads each, 3 blocks and a commit each, one listing.
    expected = (9 * 0.0004 + 12 * 0.0055 + 0.005 + 0.0055) / 1000
    assert quote.request_usd == pytest.approx(expected)
    small = quotes_of(shipped, AWS, AZURE, 1e-6, 3)["AzCopy"]
    assert small.request_usd == pytest.approx((3 * 0.0004 + 3 * 0.0055 + 0.0105) / 1000)


def test_inside_one_region_no_egress_is_charged(shipped: Grid) -> None:
    quote = quotes_of(shipped, GCP, GCP, 10.0)["Google Storage Transfer Service, agentless"]
    assert (quote.egress_usd, quote.total_usd) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("src", "dst", "service", "why"),
    [
        (GCP, AZURE, "AWS DataSync", "one end must be storage in AWS"),
        (HERE, AWS, "AWS DataSync", "not from a directory of this machine"),
        (AZURE, AWS, "Google Storage Transfer Service", "Amazon S3 can be a source alone"),
        (GCP, AZURE, "Google Storage Transfer Service", "Azure Blob Storage can be a source"),
        (AWS, HERE, "Google Storage Transfer Service", "one end must be Cloud Storage"),
        (AWS, GCP, "AzCopy", "the destination must be Azure Storage"),
        (GCP, HERE, "AzCopy", "from Azure Storage alone"),
    ],
)
def test_a_route_that_a_service_does_not_serve_has_a_reason_and_no_price(
    shipped: Grid, src: str, dst: str, service: str, why: str
) -> None:
    quote = quotes_of(shipped, src, dst, 10.0, 10)[service]
    assert why in quote.reason
    numbers = (quote.usd_per_gb, quote.service_usd, quote.egress_usd, quote.request_usd)
    assert {*numbers, quote.total_usd} == {None}


@pytest.mark.parametrize(("src", "dst"), list(product(KNOWN_CLOUDS, repeat=2)))
def test_every_route_has_a_price_or_a_reason_from_each_service(
    shipped: Grid, src: str, dst: str
) -> None:
    found = quote_services(shipped, PLACES[src], PLACES[dst], 1.0, 1)
    served = {quote.name.partition(",")[0] for quote in found}
    assert served == {"AWS DataSync", "Google Storage Transfer Service", "AzCopy"}
    for quote in found:
        assert bool(quote.reason) != (quote.total_usd is not None)
        assert (quote.fee is None) == (quote.served is None) == bool(quote.reason)


def test_every_fact_has_a_source_and_a_date() -> None:
    for service in load_services():
        for offer in service.offers:
            for fact in (offer.fee, offer.served):
                assert fact.source
                assert re.search(r"\d{4}-\d\d-\d\d\Z", fact.as_of)
                assert isinstance(fact.is_verified, bool)
            for route in offer.routes:
                assert set(route.split(">")) <= set(KNOWN_CLOUDS)


def test_the_notes_say_how_old_the_fee_is_and_what_is_not_counted(shipped: Grid) -> None:
    quotes = quotes_of(shipped, GCP, AWS)
    notes = quotes["AWS DataSync, basic mode"].notes
    assert notes[0] == "fee of 2025-04-01"
    assert any("agent" in note and "not counted" in note for note in notes)
    assert not any("agent" in note for note in quotes["AWS DataSync, enhanced mode"].notes)


def test_a_price_that_nobody_verified_is_named(shipped: Grid) -> None:
    guessed = "aws:mx-central-1"
    quote = quotes_of(shipped, guessed, AWS)["AWS DataSync, enhanced mode"]
    assert any(guessed in note and "never verified" in note for note in quote.notes)
