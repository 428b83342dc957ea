"""The transfers that a gateway leads; the other gateways and what a transfer does are made up."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import Executor, Future
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.gateway.service.in_process_fleet import copy_spec, route
from tests.memory_store import _CAPABILITIES

from skyplane_gateway import led_transfers as module
from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_gateway.common.errors import GatewayUnreachable, StoreUnavailable
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.config import GatewayConfig, Topology
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.led_transfers import LedTransfers

KEY = "ab" * 16
SPEC = copy_spec(StoreSpec("memory", "here"), StoreSpec("memory", "there"))


class Client:
    """A control client of the sink."""

    def __init__(self) -> None:
        self.looks = 0

    def status(self) -> dict[str, Any]:
        self.looks += 1
        raise GatewayUnreachable("not yet")

    def store_verb(self, *_: Any) -> dict[str, Any]:
        return {"capabilities": asdict(_CAPABILITIES), "capacity_bytes": 1 << 20}


class AtOnce(Executor):
    """Runs each call when it is submitted."""

    def submit(self, call: Any, /, *arguments: Any, **options: Any) -> Any:
        made: Future[Any] = Future()
        try:
            made.set_result(call(*arguments, **options))
        except GatewayUnreachable as error:
            made.set_exception(error)
        return made


class EndsAtOnce:
    """A transfer; that of epoch 2 cannot be made."""

    def __init__(self, *, epoch: int, **_: Any) -> None:
        if epoch == 2:
            raise StoreUnavailable("not now")
        self.epoch = epoch
        self.report = Report()

    async def run(self) -> None: ...


def leads_of(node: str = "a", client: Client | None = None) -> LedTransfers:
    """Of one gateway; "a" is the source, and "b" the sink."""
    row = {"number": 0, "role": "source", "down": ""}
    endpoints = SimpleNamespace(
        lock=lambda key: asyncio.Lock(),
        source=lambda key, epoch: None,
        sources={KEY: SimpleNamespace(store=None)},
    )
    router = SimpleNamespace(
        topology=Topology((route(0, "a", "b"),), {}, {}),
        statistics=lambda: [row],
        loss=lambda number: None,
    )
    return LedTransfers(
        GatewayConfig(node, "ef" * 16, "127.0.0.1", "127.0.0.1", directory="/nowhere"),
        endpoints=cast("Any", endpoints),
        router=cast("Any", router),
        threads=AtOnce(),
        connect=lambda node: cast("Any", client or Client()),
        renew_fleet=lambda: asyncio.sleep(0),
        clock=SYSTEM_CLOCK,
        rng=random.Random(1),
    )


async def test_a_submit_that_fails_leaves_the_earlier_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The earlier epoch is still the one that its orchestrator asks for its report."""
    monkeypatch.setattr(module, "LeadTransfer", EndsAtOnce)
    leads = leads_of()
    await leads.submit(KEY, epoch=1, spec=SPEC)
    await leads._runs[KEY].task
    earlier = leads.transfer(KEY)
    with pytest.raises(StoreUnavailable, match="not now"):
        await leads.submit(KEY, epoch=2, spec=SPEC)
    assert leads.transfer(KEY) is earlier
    assert earlier.report.page(0)["complete"]
    # An epoch that begins takes its place.
    await leads.submit(KEY, epoch=3, spec=SPEC)
    assert leads.transfer(KEY).epoch == 3
    with pytest.raises(ValueError, match="closed file"):
        earlier.report.page(0)
    assert leads.transfer(KEY).report.page(0)["complete"]
    leads.close_reports()


@pytest.mark.parametrize(("node", "calls"), [("a", 3), ("b", 0)])
def test_a_source_opens_the_connections_of_a_first_transfer(node: str, calls: int) -> None:
    """As many as the transfer begins with; a sink that does not answer yet is no error."""
    client = Client()
    leads_of(node, client).connect_sinks(Topology((route(0, "a", "b"),), {}, {}))
    assert client.looks == calls
