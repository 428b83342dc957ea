"""The first process of an instance, as a real process with real gateways."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.provision.fleet.enrolling import enrol_at

from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.enrolment import supervisor
from skyplane_gateway.enrolment.documents import EnrolmentDocument
from skyplane_orchestration.security.authority import Authority, FleetSecret

KEY = "ab" * 16
INSTANCE = "aws:us-east-1/0"
NODES = (f"{INSTANCE}.0", f"{INSTANCE}.1")
LAUNCH = "1a" * 16
DAY_S = 86400.0
HOST = "127.77.1.1"
AUTHORITY = Authority(FleetSecret(b"the secret of all tests of this file"), KEY)

pytestmark = pytest.mark.e2e


def document(start_within_s: float = 60.0) -> EnrolmentDocument:
    return EnrolmentDocument(
        fleet_key=KEY,
        instance=INSTANCE,
        port=0,
        start_within_s=start_within_s,
        authority_pem=AUTHORITY.ca_certificate_pem(time.time() + DAY_S),
        token_hex=AUTHORITY.enrolment_token(INSTANCE, LAUNCH).hex(),
    )


def config_of(node: str) -> GatewayConfig:
    return GatewayConfig(
        node=node,
        fleet_key=KEY,
        control_host="",
        data_host="",
        directory="",
        hello_keys_hex={"gcp:us-east1/0": AUTHORITY.hello_key(node, "gcp:us-east1/0").hex()},
    )


@dataclass
class Running:
    """`skyplane-gateway enrol`, and its output as far as it was read."""

    process: subprocess.Popen[str]
    root: Path
    lines: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def read_until(self, *words: str) -> str:
        """The first line with all words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if all(word in line for word in words):
                return line
        raise AssertionError(f"ended without {words}: {self.output}")

    def wait(self) -> int:
        """Its status, after the rest of its output."""
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)
        return self.process.wait()

    def enrol(self) -> None:
        self.port = int(self.read_until("waits for its orchestrator").split()[-1])
        gateways = {node: config_of(node) for node in NODES}
        enrol_at((HOST, self.port), AUTHORITY, INSTANCE, LAUNCH, gateways, timeout_s=30.0)

    def gateways(self) -> dict[str, ControlClient]:
        """Clients of the gateways, which are ready in any order."""
        found: dict[str, ControlClient] = {}
        while len(found) < len(NODES):
            line = self.read_until("is ready: control")
            (node,) = (node for node in NODES if f"{node} is ready" in line)
            port = int(line.partition("control ")[2].partition(",")[0])
            uri = AUTHORITY.expected_uri(node)
            found[node] = ControlClient(HOST, port, AUTHORITY.client_context(), uri)
        return found

    def descendants(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]


@contextmanager
def running(root: Path, text: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-m", "skyplane_gateway", "enrol", "--address", HOST],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(root), "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
        yield Running(process, root)
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_gateways_run_until_the_orchestrator_ends_them(tmp_path: Path) -> None:
    with running(tmp_path, document().to_json()) as instance:
        instance.enrol()
        gateways = instance.gateways()
        for node, client in gateways.items():
            assert client.status()["state"] == "running"
            assert f"{node} is ready" in client.log_tail()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, instance.port))
        (root,) = tmp_path.iterdir()
        assert root.stat().st_mode & 0o777 == 0o700
        assert_no_secret_is_readable(instance, root)
        for client in gateways.values():
            client.shutdown()
            client.close()
        assert instance.wait() == 0
    assert "all gateways have ended" in instance.output
    assert not list(tmp_path.iterdir())


def assert_no_secret_is_readable(instance: Running, root: Path) -> None:
    """Not in arguments, environments or output; in files of this user only."""
    hello_keys = [key for node in NODES for key in config_of(node).hello_keys_hex.values()]
    secrets = [document().token_hex, *hello_keys]
    places = [instance.output]
    for pid in (instance.process.pid, *instance.descendants()):
        for name in ("cmdline", "environ"):
            places.append(Path(f"/proc/{pid}/{name}").read_text())
    assert len(places) == 1 + 2 * 3
    assert not [secret for secret in secrets for place in places if secret in place]
    files = [path for path in root.rglob("*") if path.is_file()]
    private = [path for path in files if path.name in ("config.json", "gateway.pem")]
    assert len(private) == 2 * len(NODES)
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    assert not [path for path in files if document().token_hex in path.read_text()]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_gateways_drain_when_the_machine_ends(number: signal.Signals, tmp_path: Path) -> None:
    with running(tmp_path, document().to_json()) as instance:
        instance.enrol()
        for client in instance.gateways().values():
            client.close()
        instance.process.send_signal(number)
        assert instance.wait() == 0
    assert instance.output.count("ending: SIGTERM") == len(NODES)
    assert not list(tmp_path.iterdir())


def test_an_instance_ends_when_a_gateway_dies(tmp_path: Path) -> None:
    with running(tmp_path, document().to_json()) as instance:
        instance.enrol()
        for client in instance.gateways().values():
            client.close()
        os.kill(instance.descendants()[0], signal.SIGKILL)
        assert instance.wait() == 1
    assert f"gateway {NODES[0]} died by signal 9" in instance.output
    assert f"gateway {NODES[1]} has ended" in instance.output
    assert not list(tmp_path.iterdir())


def test_an_instance_ends_when_no_orchestrator_comes(tmp_path: Path) -> None:
    with running(tmp_path, document(start_within_s=0.01).to_json()) as instance:
        assert instance.wait() == 1
    assert "no orchestrator came within 0.01 s" in instance.output
    assert not list(tmp_path.iterdir())


def test_an_instance_that_is_ended_while_it_waits(tmp_path: Path) -> None:
    with running(tmp_path, document().to_json()) as instance:
        instance.read_until("waits for its orchestrator")
        instance.process.terminate()
        assert instance.wait() == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        document().to_json()[:-1],
        replace(document(), authority_pem="no certificate").to_json(),
        "x" * 100_000,
    ],
)
def test_a_document_that_cannot_be_used_ends_it_with_2_and_one_line(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    out = io.StringIO()
    assert supervisor.run(["--address", HOST], io.BytesIO(text.encode()), out) == 2
    output = out.getvalue()
    assert len(output.splitlines()) == 1
    assert output.startswith("skyplane-gateway: ")
    assert document().token_hex not in output
    assert not list(tmp_path.iterdir())


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "skyplane_gateway", "enrol", "--address", "192.0.2.1"],
        input=document().to_json(),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert len(done.stdout.splitlines()) == 1
    assert not list(tmp_path.iterdir())
