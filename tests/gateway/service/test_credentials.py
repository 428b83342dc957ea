"""Credentials that expire while a transfer runs, between S3 servers that tell by the key."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest
from tests.faults import moto_server
from tests.faults.http_proxy import FaultProxy, running
from tests.faults.http_rules import EXPIRED, Rule
from tests.gateway.service.in_process_fleet import copy_spec, route

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.config import MIB, AttachOrder, End
from skyplane_gateway.stores import Credentials, open_store
from skyplane_gateway.stores.base import read_object

PART = 5 * MIB
ROOMY = {"assembly_mib": 64}
BODIES = {"small": b"small", "whole": os.urandom(PART), "parts": os.urandom(2 * PART + 1)}
KEY = "77" * 16


@dataclass(frozen=True)
class Place:
    """Source and destination, each behind a proxy of its own."""

    proxies: dict[str, FaultProxy]
    specs: dict[str, StoreSpec]
    direct: dict[str, StoreSpec]

    def expire(self, side: str, key: str, *, after: int) -> None:
        """From that request on the side's store takes the credentials for expired."""
        self.proxies[side].schedule.add(
            Rule(
                "answer",
                header=f"^authorization: .*Credential={key}/",
                status=400,
                body=EXPIRED,
                nth=after,
                times=0,
            )
        )


def credentials(key: str) -> Credentials:
    return Credentials({"access_key_id": key, "secret_access_key": "s"})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that accepts any key; its address."""
    with moto_server.running() as url:
        yield url


@pytest.fixture
def place(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "direct")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    client = boto3.client("s3", endpoint_url=server, region_name="us-east-1")
    with running(server) as before_source, running(server) as before_sink:
        made = Place({"source": before_source, "sink": before_sink}, {}, {})
        for side, proxy in made.proxies.items():
            bucket = f"b-{uuid.uuid4().hex[:12]}"
            client.create_bucket(Bucket=bucket)
            made.direct[side] = StoreSpec("s3", bucket, server, "us-east-1")
            made.specs[side] = replace(made.direct[side], endpoint_url=proxy.url)
        for key, body in BODIES.items():
            client.put_object(Bucket=made.direct["source"].bucket, Key=key, Body=body)
        yield made
    client.close()


def copied(place: Place) -> dict[str, bytes]:
    store = open_store(place.direct["sink"])
    keys = [row.key for row in store.list("")]
    found = {key: read_object(store, key, max_bytes=64 * MIB)[1] for key in keys}
    assert list(store.list_uploads("")) == []
    store.close()
    return found


def refused(place: Place, side: str) -> int:
    return sum(row.fault is not None for row in place.proxies[side].log.exchanges)


async def attach(fleet: Any, place: Place, given: Credentials | None) -> None:
    topology = fleet.topology()
    ends: list[tuple[End, Any]] = [("source", topology.sources), ("sink", topology.sinks)]
    for side, nodes in ends:
        for node in nodes:
            order = AttachOrder(1, side, place.specs[side], given)
            await asyncio.to_thread(fleet.client(node).attach, KEY, order)


@pytest.mark.parametrize("side", ["source", "sink"])
async def test_a_transfer_continues_with_fresh_credentials(
    side: str, place: Place, fleet_of: Any
) -> None:
    spec = copy_spec(place.specs["source"], place.specs["sink"], chunk_bytes=PART)
    async with fleet_of(route(0, "a", "r", "b"), **ROOMY) as fleet:
        node = "a" if side == "source" else "b"
        client = fleet.client(node)
        await attach(fleet, place, credentials("old"))
        place.expire(side, "old", after=4)
        await fleet.submit(KEY, spec)
        await fleet.until(lambda: refused(place, side) > 0)
        ends = fleet.service(node).endpoints
        await fleet.until(lambda: ends.needs_credentials(KEY) == [side])
        assert (await asyncio.to_thread(client.status))["needs_credentials"] == {KEY: [side]}
        if side == "source":
            document = await asyncio.to_thread(client.transfer_status, KEY)
            assert (document["state"], document["needs_credentials"]) == ("running", [side])
        await asyncio.to_thread(
            client.renew_credentials,
            KEY,
            epoch=1,
            side=side,
            credentials=credentials("new"),
        )
        status = await fleet.ended(KEY)
        assert (status["error"], status["copied"], status["failed"]) == (None, 3, 0)
        assert ends.needs_credentials(KEY) == []
        await fleet.heard(KEY, spec)
    assert copied(place) == BODIES


async def test_the_gateway_renews_credentials_of_the_platform(
    place: Place, fleet_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")

    spec = copy_spec(place.specs["source"], place.specs["sink"], chunk_bytes=PART)
    async with fleet_of(route(0, "a", "r", "b"), **ROOMY) as fleet:
        await attach(fleet, place, None)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
        place.expire("sink", "old", after=4)
        await fleet.submit(KEY, spec)
        status = await fleet.ended(KEY)
        assert (status["error"], status["copied"], status["failed"]) == (None, 3, 0)
        assert refused(place, "sink") > 0
        await fleet.heard(KEY, spec)
    assert copied(place) == BODIES
