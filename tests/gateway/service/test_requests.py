"""Invalid requests are refused with an error document."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from skyplane_gateway.common.errors import (
    SkyplaneError,
    UnknownTransfer,
)
from skyplane_gateway.config import AttachOrder

KEY = "ab" * 16


def call(client: Any, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    response: tuple[int, bytes] = client._pool.exchange(method, path, body, 10.0)
    return response


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
        ("PUT", "/v1/plan", b"[]"),
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
async def test_a_bad_request_is_the_callers_fault(
    method: str, path: str, body: bytes | None, fleet_of: Any, kit: Any
) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        status, text = await asyncio.to_thread(call, fleet.client("a"), method, path, body)
        assert 400 <= status < 500
        document = json.loads(text)
        assert document["code"] in ("configuration-invalid", "unknown-transfer")
        assert document["is_permanent"]
        assert "secret" not in document["message"]
        after = await asyncio.to_thread(fleet.client("a").status)
        assert after["connected"]
        assert after["lease_remaining_s"] > 60


async def test_a_submit_before_its_attach_and_to_nobody(fleet_of: Any, kit: Any) -> None:
    spec = kit.copy_spec(kit.memory_spec(), kit.memory_spec())
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        with pytest.raises(UnknownTransfer):
            await fleet.submit(KEY, spec)
        # Only the source was attached: the sink does not know what to do.
        client = fleet.client("a")
        await asyncio.to_thread(lambda: client.attach(KEY, AttachOrder(1, "source", spec.source)))
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
        # A cancel and a release of an unknown transfer succeed.
        await asyncio.to_thread(client.cancel, "cd" * 16)
        await asyncio.to_thread(client.release, "cd" * 16, 1)
