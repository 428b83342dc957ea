"""No secret of a whole run on cloud instances stands where others can look.

Looked at: command lines and environments of all processes of the machines and of the worker, user
data, consoles, every request to the cloud with its tags, logs, and every document of the run. The
files of a gateway that hold its keys are in its machine's memory, with mode 0600; they are not
searched.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
import pytest
from tests.e2e.cloud_sites import CloudSite
from tests.e2e.conftest import STORE_SECRET
from tests.e2e.held_store import refuse

from skyplane_orchestration.errors import TransferFailed
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.provision.fleet.machines import ENROLMENT_PORT
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from strict_clouds.world import Machine, World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.faults.http_proxy import FaultProxy

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.status import TransferStatus

pytestmark = [pytest.mark.e2e, pytest.mark.long]

CLOUD_SECRET: Final = "cloud-hush-" + "fedcba9876543210" * 2


@dataclass
class Shown:
    """What others can look at: place -> text."""

    texts: dict[str, str] = field(default_factory=dict)

    def add(self, place: str, text: str) -> None:
        self.texts[f"{len(self.texts)} {place}"] = text

    def add_processes(self, pids: Iterable[int]) -> None:
        """Command lines and environments of processes that run."""
        for pid in pids:
            for what in ("cmdline", "environ"):
                with contextlib.suppress(OSError):  # It may have ended.
                    data = Path(f"/proc/{pid}/{what}").read_bytes()
                    self.add(f"{what} of process {pid}", data.decode(errors="replace"))

    def places_of(self, secrets: Iterable[str]) -> list[str]:
        """Where one of them stands."""
        return sorted(
            place for place, text in self.texts.items() if any(secret in text for secret in secrets)
        )

    def count(self, word: str) -> int:
        return sum(word in place for place in self.texts)


def forms(key: bytes) -> list[str]:
    """How a key may be written."""
    return [key.hex(), base64.b64encode(key).decode().rstrip("="), repr(key)[2:-1]]


def keys_of(client: Client, fleet: Fleet, transfer_key: str) -> list[str]:
    """Everything that is derived from the fleet secret, and private keys of any kind."""
    authority = client.authority(fleet.key)
    nodes = [handle.node for handle in fleet.gateways]
    derived = [
        authority.sealing_key(transfer_key, fleet.start_id),
        authority._derive("authority key"),
        *(authority.hello_key(one, other) for one in nodes for other in nodes if one < other),
    ]
    return [*(form for key in derived for form in forms(key)), "PRIVATE KEY"]


def user_data_of(machine: Machine) -> str:
    return (machine.directory / "user-data").read_text()


def processes_of(machine: Machine) -> list[int]:
    """The process ids of a machine's own programs, the first one included."""
    found: list[int] = []
    waiting = [int((machine.directory / "pid").read_text())]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return found


def requests_of(site: CloudSite, user_data: Iterable[str]) -> list[str]:
    """Every request to the cloud, as it was sent, without user data."""
    hidden = {form for text in user_data for form in (text, encoded(text))}

    def shown(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: shown(one) for name, one in value.items()}
        if isinstance(value, list):
            return [shown(one) for one in value]
        return "" if value in hidden else value

    return [repr(shown(vars_of(call))) for call in site.fake.calls]


def vars_of(call: Any) -> dict[str, Any]:
    """The fields of a request; those of AWS repeat their parameters as the body."""
    return {one.name: getattr(call, one.name) for one in fields(call) if one.type != "bytes"}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def tokens_of(client: Client, fleet: Fleet, launch_ids: Mapping[str, str]) -> list[list[str]]:
    """How the one-time token of each instance may be written."""
    authority = client.authority(fleet.key)
    return [
        forms(authority.enrolment_token(instance, launch_id))
        for instance, launch_id in launch_ids.items()
    ]


def launch_ids_of(client: Client, fleet: Fleet) -> dict[str, str]:
    """Name of an instance -> the id of its launch."""
    provisioner = client.provisioner
    assert isinstance(provisioner, InstanceProvisioner)
    found = provisioner._context.clouds.describe(fleet.key, fleet.plan.instances)
    return {one.instance: one.launch_id for one in found}


def read_manifest(path: Path) -> str:
    return str(pq.read_table(io.BytesIO(path.read_bytes())).to_pylist())


def documents_at(server: S3Server, bucket: str) -> list[str]:
    """Journals and markers beside the objects."""
    client = server.client()
    rows = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    return [
        client.get_object(Bucket=bucket, Key=row["Key"])["Body"].read().decode(errors="replace")
        for row in rows
        if ".skyplane/" in row["Key"]
    ]


@pytest.fixture
def client(kit: ClientKit, site: CloudSite, tmp_path: Path) -> Client:
    """On AWS the cloud and the stores have credentials of their own: a file, the environment.

    The other fakes ask for none.
    """
    profile = kit.home.directory / ".aws" / "credentials"
    profile.parent.mkdir()
    profile.write_text(
        f"[cloud]\naws_access_key_id = cloud\naws_secret_access_key = {CLOUD_SECRET}\n"
    )
    if site.regions[0].startswith("aws:"):
        site = replace(site, section={**site.section, "credential_ref": "profile:cloud"})
    return site.client(kit, tmp_path / "clouds.yaml", processes_per_instance=1)


def test_no_secret_of_a_run_on_instances_shows_anywhere(
    kit: ClientKit,
    client: Client,
    site: CloudSite,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    world: World,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", logger="skyplane_orchestration")
    job, shown, manifest = replace(job, encrypt="always"), Shown(), tmp_path / "manifest.parquet"
    plan = site.relayed(kit)
    fleet = client.provision(plan)
    launch_ids = launch_ids_of(client, fleet)
    shown.add("plan", json.dumps(plan.to_dict()))
    shown.add("fleet", json.dumps(fleet.to_dict()))

    def look() -> None:
        for machine in world.machines:
            shown.add_processes(processes_of(machine))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((machine.address, ENROLMENT_PORT), timeout=10).close()
        shown.add_processes([os.getpid()])
        for text in documents_at(servers[1], job.destination.bucket):
            shown.add("journal", text)
        refuse(gate)

    def on_status(status: TransferStatus) -> None:
        is_first = not shown.count("cmdline")
        shown.add("status", repr(status))
        if is_first and status.is_running and len(status.open_uploads) == 2:
            look()

    try:
        with pytest.raises(TransferFailed) as caught:
            client.transfer(job, fleet, manifest=str(manifest), on_status=on_status)
        result = caught.value.result
    finally:
        report = client.teardown(fleet)
    assert isinstance(result, TransferResult)
    shown.add("result", json.dumps(result.to_dict()))
    shown.add("resume handle", result.resume_handle)
    shown.add("manifest", read_manifest(manifest))
    shown.add("report of the teardown", repr(report))
    shown.add("log of the worker", caplog.text)
    for node, tail in report.log_tails.items():
        shown.add(f"log of {node}", tail)
    for machine in world.machines:
        shown.add("console", machine.console())
    user_data = Shown({str(number): user_data_of(one) for number, one in enumerate(world.machines)})
    for request in requests_of(site, user_data.texts.values()):
        shown.add("request", request)
    words = "environ", "journal", "console", "log", "request"
    counts = {word: shown.count(word) for word in words}
    assert all(counts.values()), counts
    assert shown.count("cmdline") >= 2 * len(world.machines) + 1

    # Store credentials reach the worker by its environment here; a gateway's never has them.
    fleet_secret = kit.secret.value.decode()
    secrets = [fleet_secret, CLOUD_SECRET, *keys_of(client, fleet, result.transfer_key)]
    assert shown.places_of([*secrets, STORE_SECRET]) == []
    assert user_data.places_of([*secrets, STORE_SECRET]) == []
    tokens = tokens_of(client, fleet, launch_ids)
    assert len(tokens) == len(world.machines) == 3
    for token in tokens:
        assert shown.places_of(token) == []
        assert len(user_data.places_of(token)) == 1
