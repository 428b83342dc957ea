"""Moves with real gateways: what must never be deleted, and what has to be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid, TransferFailed
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.transfer import move

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = pytest.mark.e2e


def test_a_linked_folder_of_the_destination_that_leads_back_to_the_source(
    kit: ClientKit, tmp_path: Path
) -> None:
    """The move would delete the only copy."""
    source, destination = tmp_path / "src", tmp_path / "dst"
    (source / "2023").mkdir(parents=True)
    destination.mkdir()
    (source / "2023" / "a").write_bytes(b"precious")
    (source / "2024").write_bytes(b"new")
    (destination / "2023").symlink_to(source / "2023")
    job = TransferJob(
        Location(f"{source}/", kit.SOURCE), Location(f"{destination}/", kit.SINK), move=True
    )
    with pytest.raises(TransferFailed, match=r"one file.*nothing was deleted") as caught:
        kit.client().run(job, plan=kit.plan((kit.SOURCE, kit.SINK)))
    assert caught.value.is_permanent
    assert (source / "2023" / "a").read_bytes() == b"precious"
    assert (source / "2024").read_bytes() == b"new"


def test_a_lead_that_ends_in_the_middle_of_the_deletes_is_not_needed(
    kit: ClientKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease may end in a move of many objects."""
    source = tmp_path / "src"
    source.mkdir()
    for name in ("_SUCCESS", "a", "b"):
        (source / name).write_text(name)
    job = TransferJob(Location(f"{source}/"), Location(f"{tmp_path}/dst/"), move=True)
    client = kit.client()
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK)))
    plain = move._remove

    def after_the_end_of_the_fleet(*arguments: Any) -> Any:
        if kit.home.gateways():
            kit.kill(fleet)
        return plain(*arguments)

    monkeypatch.setattr(move, "_remove", after_the_end_of_the_fleet)
    result = client.transfer(job, fleet)
    client.teardown(fleet)
    assert (result.state, result.moved) == ("succeeded", 3)
    assert list(source.iterdir()) == []
    assert sorted(path.name for path in (tmp_path / "dst").iterdir()) == ["_SUCCESS", "a", "b"]


def test_one_bucket_by_two_names_of_its_server(
    kit: ClientKit, servers: tuple[S3Server, S3Server]
) -> None:
    """Refused before a fleet is built: the move would delete the only copy."""
    server = servers[0]
    bucket = server.make_bucket("two-names")
    server.fill(bucket, "p/", {"a": b"precious"})
    other = server.endpoint.replace("127.0.0.1", "localhost")
    job = TransferJob(
        Location(f"s3://{bucket}/p/", server.region, server.endpoint),
        Location(f"s3://{bucket}/p/", server.region, other),
        move=True,
    )
    with pytest.raises(ConfigurationInvalid, match="one place by two names"):
        kit.client().run(job, plan=kit.plan((kit.SOURCE, kit.SINK)))
    assert list(server.digests(bucket)) == ["p/a"]
