"""A destination that never responds: the error names the store, and no gateway counts as lost."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.config import MIB
from skyplane_gateway.control import client as client_module


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        # The writing of chunks: no receipt comes by any path.
        ("put_part", "chunks waiting for it: [1-9]"),
        # A verb of the lead, which must not take the sink for lost.
        ("create_upload", "no answer of the store .* to 'create' within 0.2 s"),
    ],
)
@pytest.mark.parametrize("nodes", [("a", "b"), ("a",)])
async def test_a_destination_that_hangs_is_named(
    verb: str,
    says: str,
    nodes: tuple[str, ...],
    fleet_of: Any,
    kit: Any,
    wrap_stores: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {f"o{number}": bytes(2 * MIB) for number in range(2)})
    over = threading.Event()
    # Threads enough: those that call the store stay until the end.
    settings = {"ack_deadline_s": 0.3, "stall_deadline_s": 0.6, "store_threads": 32}

    def hang(*_: Any, **__: Any) -> None:
        over.wait(60)
        raise StoreUnavailable("it never answered")

    wrap_stores(**{verb: hang})
    monkeypatch.setattr(client_module, "_VERB_TIMEOUT_S", 5.2)

    async with fleet_of(kit.route(0, *nodes), **settings) as fleet:
        transfer = "58" * 16
        await fleet.attach(transfer, source, destination)
        await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
        try:
            status = await fleet.ended(transfer)
        finally:
            over.set()
        assert status["state"] == "failed"
        assert status["lost_sinks"] == {}
        error = status["error"]
        assert error["code"] in ("store-unavailable", "objects-failed")
        assert f"memory://{destination.bucket}" in error["message"]
        assert re.search(says, error["message"])
