"""Large objects that the store copies itself, between two prefixes of a real server."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from tests.e2e.held_store import MIB, PATIENCE_S, HeldStore, take
from tests.e2e.test_cli_cp import answer_of, orch_here

from skyplane_gateway.common.checksum import crc32c
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from tests.e2e.beside import Beside
    from tests.e2e.conftest import ClientKit

pytestmark = pytest.mark.e2e

#: In parts of 5 MiB: 18 in all.
BODIES: Final = {
    "large0": os.urandom(42 * MIB),
    "large1": os.urandom(45 * MIB),
    "small": b"sent whole",
}
TRUSTED: Final = {"checksum": "trusted"}


@pytest.fixture
def job(kit: ClientKit, held: HeldStore) -> TransferJob:
    """Copies `BODIES`; some parts of them are held."""
    for key, body in BODIES.items():
        held.client.put_object(
            Bucket=held.bucket,
            Key=f"from/{key}",
            Body=body,
            ContentType="text/x-test",
            Metadata={"owner": key},
            ChecksumCRC32C=base64.b64encode(crc32c(body).to_bytes(4, "big")).decode(),
        )
    source = Location(f"s3://{held.bucket}/from/", kit.SOURCE, held.proxy.url, options=TRUSTED)
    return TransferJob(source, replace(source, url=held.url), limits=Limits(chunk_mib=5))


def require_copied(held: HeldStore) -> None:
    for key, body in BODIES.items():
        answer = held.client.get_object(Bucket=held.bucket, Key=f"copy/{key}")
        assert answer["Body"].read() == body
        assert (answer["ContentType"], answer["Metadata"]["owner"]) == ("text/x-test", key)
    assert held.open_uploads() == []


def require_only_small_bodies_read(held: HeldStore) -> None:
    read = {each.key for each in held.proxy.log.exchanges if each.method == "GET"}
    assert f"{held.bucket}/from/small" in read
    assert not {f"{held.bucket}/from/{key}" for key in ("large0", "large1")} & read


def test_copies_of_a_lead_that_was_killed_are_continued(
    kit: ClientKit, held: HeldStore, job: TransferJob, beside: Beside
) -> None:
    client = kit.client()
    fleet = client.provision(kit.plan((kit.SOURCE,)))
    try:
        running = beside.start(lambda: client.transfer(job, fleet))
        held.wait_until_half_way()
        kit.kill(fleet)
        # What was held never reaches the store.
        held.proxy.schedule.clear()
        held.proxy.release(drop=True)
        result = running.result(PATIENCE_S)
    finally:
        client.teardown(fleet)
    assert (result.epoch, result.copied, result.failed) == (2, 3, 0)
    assert (result.server_side, result.server_side_bytes) == (2, 87 * MIB)
    assert result.cost.egress_usd == 0
    require_copied(held)
    require_only_small_bodies_read(held)
    assert held.sent_again() == {}


def test_the_command_says_so_and_can_be_told_not_to(
    kit: ClientKit, held: HeldStore, job: TransferJob
) -> None:
    take(held.proxy)
    keys = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    home = replace(kit.home, more=keys)
    command = ["cp", "-r", job.source.url, job.destination.url, "--chunk-mib", "5"]
    for end in ("src", "dst"):
        command += [f"--{end}-region", kit.SOURCE, f"--{end}-endpoint", held.proxy.url]
        command += [f"--{end}-option", "checksum=trusted"]
    preview = orch_here(home, *command, "--dry-run")
    assert "the store itself copies large ones" in preview.stdout
    done = orch_here(home, *command, "--json")
    result = answer_of(done)
    assert (result["copied"], result["server_side"]) == (3, 2)
    assert "large objects by the store itself" in done.stderr
    require_copied(held)
    require_only_small_bodies_read(held)
    result = answer_of(orch_here(home, *command, "--json", "--server-side-copy", "never"))
    assert (result["copied"], result["server_side"]) == (3, 0)
    require_copied(held)
