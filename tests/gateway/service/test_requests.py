"""Requests that no client of ours would send: refused in our own words, never with a crash."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any

import pytest

from skyplane_gateway.errors import (
    ConfigurationInvalid,
    InternalError,
    NotFound,
    SkyplaneError,
    StaleEpoch,
    UnknownTransfer,
)

KEY = "ab" * 16


def call(client: Any, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = client._new(10.0)
    try:
        connection.request(method, path, body=body)
        answer: http.client.HTTPResponse = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/nothing", None),
        ("GET", "/", None),
        ("DELETE", "/v1/status", None),
        ("PUT", "/v1/topology", b"{"),
        ("PUT", "/v1/topology", b"[]"),
        ("PUT", "/v1/topology", b"\xff"),
        ("PUT", "/v1/topology", b'{"routes": [1], "data_addresses": {}}'),
        ("PUT", "/v1/topology", b"x" * (17 << 20)),
        ("POST", "/v1/renew", b'{"lease_s": "long"}'),
        ("POST", "/v1/renew", b'{"lease_s": NaN}'),
        ("POST", "/v1/renew", b'{"lease_s": -1}'),
        ("POST", "/v1/renew", b'{"lease_s": [1]}'),
        ("GET", "/v1/log?max_bytes=many", None),
        ("POST", f"/v1/transfers/{KEY}", b"{}"),
        ("POST", f"/v1/transfers/{KEY}", b'{"epoch": 1, "spec": []}'),
        ("POST", f"/v1/transfers/{KEY}", b'{"epoch": [], "spec": {}}'),
        ("POST", f"/v1/transfers/{KEY}/attach", b"{}"),
        (
            "POST",
            f"/v1/transfers/{KEY}/attach",
            b'{"epoch": 1, "side": "source", "store": [], "credentials": null}',
        ),
        (
            "POST",
            f"/v1/transfers/{KEY}/attach",
            b'{"epoch": 1, "side": "source", "store": {"kind": "tape", "bucket": "b"}}',
        ),
        (
            "POST",
            f"/v1/transfers/{KEY}/attach",
            b'{"epoch": 1, "side": "middle", "store": {"kind": "memory", "bucket": "b"}}',
        ),
        (
            "POST",
            f"/v1/transfers/{KEY}/attach",
            b'{"epoch": 1, "side": "sink", "verify": "yes",'
            b' "store": {"kind": "memory", "bucket": "b"}}',
        ),
        (
            "POST",
            f"/v1/transfers/{KEY}/attach",
            b'{"epoch": 1, "side": "source", "store": {"kind": "memory", "bucket": "b"},'
            b' "credentials": "secret"}',
        ),
        (
            "POST",
            "/v1/transfers/not-hex/attach",
            b'{"epoch": 1, "side": "source", "store": {"kind": "memory", "bucket": "b"}}',
        ),
        ("GET", f"/v1/transfers/{KEY}/report?offset=x", None),
    ],
)
def test_a_bad_request_is_the_callers_fault(
    method: str, path: str, body: bytes | None, fleet_of: Any, kit: Any
) -> None:
    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            status, text = await asyncio.to_thread(call, fleet.client("a"), method, path, body)
            assert 400 <= status < 500
            document = json.loads(text)
            assert document["code"] in ("configuration-invalid", "unknown-transfer")
            assert document["is_permanent"]
            assert "secret" not in document["message"]
            # The gateway itself is none the worse for it.
            after = await asyncio.to_thread(fleet.client("a").status)
            assert after["connected"]
            assert after["lease_remaining_s"] > 60

    asyncio.run(scenario())


def test_a_submit_before_its_attach_and_to_nobody(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        spec = kit.copy_spec(kit.memory_spec(), kit.memory_spec())
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            with pytest.raises(UnknownTransfer):
                await fleet.submit(KEY, spec)
            # Only the source was attached: the sink does not know what to do.
            client = fleet.client("a")
            await asyncio.to_thread(
                lambda: client.attach(
                    KEY, epoch=1, side="source", store=spec.source, credentials=None
                )
            )
            with pytest.raises(UnknownTransfer, match="no sink"):
                await fleet.submit(KEY, spec)
            assert fleet.service("a").leads._runs == {}
            for wrong in (
                lambda: client.transfer_status("cd" * 16),
                lambda: client.report("cd" * 16),
                lambda: client.submit("zz", epoch=1, spec=spec),
            ):
                with pytest.raises(SkyplaneError):
                    await asyncio.to_thread(wrong)
            # What is not there can be cancelled and released all the same.
            await asyncio.to_thread(client.cancel, "cd" * 16)
            await asyncio.to_thread(client.release, "cd" * 16, 1)

    asyncio.run(scenario())


def test_an_attach_that_is_refused_keeps_no_store_open(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        store_type = type(kit.fill(source, {}))
        monkeypatch.setattr(store_type, "close", lambda self: closed.append(self.spec))
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            await fleet.attach(KEY, source, destination, epoch=2)
            assert closed == []
            with pytest.raises(StaleEpoch):
                await fleet.attach(KEY, source, destination, epoch=1)
            assert closed == [source]
            missing = type(source)("memory", "nowhere")
            with pytest.raises(NotFound):
                await fleet.attach("cd" * 16, missing, destination)
            assert closed == [source, missing]

    asyncio.run(scenario())


def test_verbs_of_a_lead_with_broken_arguments(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            await fleet.attach(KEY, source, destination)
            service = fleet.service("b")
            with pytest.raises(ConfigurationInvalid):
                await service.endpoints.store_verb(KEY, 1, "explode", {})
            # A lead of the same version does not send these: it is a fault of ours.
            for verb, arguments in (
                ("create", {}),
                ("list", {"limit": None}),
                ("complete", {"parts": 7, "size_bytes": 1}),
            ):
                with pytest.raises(InternalError):
                    await service.endpoints.store_verb(KEY, 1, verb, arguments)
            with pytest.raises(StaleEpoch):
                await service.endpoints.store_verb(KEY, 0, "list", {})
            with pytest.raises(UnknownTransfer):
                await service.endpoints.store_verb("cd" * 16, 1, "list", {})

    asyncio.run(scenario())
