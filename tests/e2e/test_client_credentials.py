"""Credentials that expire in mid-transfer: the orchestrator hands over fresh ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import STORE_SECRET
from tests.faults.http_proxy import running
from tests.faults.http_rules import EXPIRED, Rule

from skyplane_gateway.stores import Credentials
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.transfer import credential_renewal

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = pytest.mark.e2e

MIB = 1 << 20


def expires(method: str) -> Rule:
    """The second such request for an object, and all after it, until there are other keys."""
    return Rule(
        "answer",
        method=method,
        target="large",
        header="^authorization: .*Credential=old/",
        status=400,
        body=EXPIRED,
        nth=2,
        times=0,
    )


def test_both_ends_continue_with_fresh_credentials(
    kit: ClientKit, servers: tuple[S3Server, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The lead does not know what the sink needs: all gateways are asked at intervals.
    monkeypatch.setattr(credential_renewal, "_CHECK_INTERVAL_S", 0.1)
    source, destination = servers
    for server in servers:
        server.make_bucket("renewed")
    source.fill("renewed", "p/", {f"large{i}": os.urandom(11 * MIB) for i in range(2)})
    source.fill("renewed", "p/", {f"small{i}": os.urandom(100) for i in range(10)})
    with (
        running(source.endpoint, [expires("GET")]) as before_source,
        running(destination.endpoint, [expires("PUT")]) as before_sink,
    ):
        proxies = {"source": before_source, "sink": before_sink}

        def resolve(name: str, _: Location) -> Credentials:
            """New ones after the first were refused, as a rotation gives them."""
            refused = any(row.fault is not None for row in proxies[name].log.exchanges)
            key = "new" if refused else "old"
            return Credentials({"access_key_id": key, "secret_access_key": STORE_SECRET})

        job = TransferJob(
            Location("s3://renewed/p/", source.region, before_source.url, "test:source"),
            Location("s3://renewed/q/", destination.region, before_sink.url, "test:sink"),
            limits=Limits(chunk_mib=5),
        )
        client = kit.client(credentials=CredentialSources({"test": resolve}))
        result = client.run(job, plan=kit.plan((kit.SOURCE, kit.SINK)))
        assert (result.state, result.copied, result.failed, result.epoch) == ("succeeded", 12, 0, 1)
        for proxy in proxies.values():
            assert any(row.fault is not None for row in proxy.log.exchanges)
    kit.ended_well(job, servers)
