"""The orchestrator sends the software, and the real receiver takes these bytes alone."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.provision.fleet.enrolling import enrol_at

from skyplane_gateway.common.dialing import directly
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.fleet import receive, software
from skyplane_orchestration.provision.fleet.software import Software, own_software, software_in
from skyplane_orchestration.security.authority import Authority, FleetSecret

TIMEOUT_S = 30.0
AUTHORITY = Authority(FleetSecret(b"the secret of all tests of this file"), "ab" * 16)
HOST = "127.0.0.1"


class Receiver:
    """`receive.py` as a boot script runs it."""

    def __init__(self, wanted: Software, directory: Path) -> None:
        self.path = directory / "software.zip"
        self.port = free_port()
        words = [str(self.path), wanted.sha256, "", HOST, str(self.port), str(wanted.size_bytes)]
        command = [sys.executable, "-I", str(receive.__file__), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def open(self, timeout_s: float) -> socket.socket:
        """A connection, once it listens."""
        while True:
            try:
                return directly(HOST, self.port, timeout_s)
            except ConnectionRefusedError:
                assert self.process.poll() is None

    def said(self) -> str:
        """All that it has said until its end."""
        return self.process.communicate(timeout=TIMEOUT_S)[0]


@contextmanager
def receiver(wanted: Software, directory: Path) -> Iterator[Receiver]:
    one = Receiver(wanted, directory)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def write_bundle(path: Path, **more: bytes) -> str:
    """A bundle with one wheel, and other content for files of the gateway."""
    with zipfile.ZipFile(path, "w") as archive:
        software.add_packages(archive)
        archive.writestr("wheels/a.whl", b"a" * 100_000)
        for name, content in more.items():
            archive.writestr(f"skyplane_gateway/{name}.py", content)
    return str(path)


@pytest.fixture
def small(tmp_path: Path) -> Software:
    """A bundle."""
    return software_in(write_bundle(tmp_path / "bundle.zip"))


def test_a_machine_takes_the_software_that_it_waits_for(tmp_path: Path) -> None:
    wanted = own_software()
    with receiver(wanted, tmp_path) as machine:
        assert wanted.push(machine.open, TIMEOUT_S)
        assert machine.said() == ""
        assert machine.process.returncode == 0
    with wanted.open() as expected:
        assert machine.path.read_bytes() == expected.read()


def test_nothing_else_is_taken_and_the_right_caller_still_comes_through(
    small: Software, tmp_path: Path
) -> None:
    changed = bytearray(small.open().read())
    changed[-1] ^= 1
    with receiver(small, tmp_path) as machine:
        assert not own_software().push(machine.open, TIMEOUT_S)
        with machine.open(TIMEOUT_S) as stream:
            stream.sendall(b"\x16\x03\x01\x02\x00")  # And it goes.
        for sent in (b"", bytes(changed)):
            with machine.open(TIMEOUT_S) as stream:
                stream.sendall(f"skyplane {small.sha256}\n".encode())
                assert stream.recv(64) == b"send\n"
                stream.sendall(sent)
                stream.shutdown(socket.SHUT_WR)
                assert stream.recv(64) == b""
        assert small.push(machine.open, TIMEOUT_S)
        assert machine.said().splitlines() == [
            "skyplane: a caller has other software, or is none of ours",
            "skyplane: a caller has other software, or is none of ours",
            "skyplane: the software came broken",
            "skyplane: the software came broken",
        ]
    assert machine.path.read_bytes() == small.open().read()


def test_a_caller_cannot_send_more_than_the_size(small: Software, tmp_path: Path) -> None:
    with receiver(small, tmp_path) as machine:
        with machine.open(TIMEOUT_S) as stream:
            stream.sendall(f"skyplane {small.sha256}\n".encode())
            assert stream.recv(64) == b"send\n"
            stream.sendall(bytes(small.size_bytes + 1000))
        assert small.push(machine.open, TIMEOUT_S)
    assert machine.path.stat().st_size == small.size_bytes


def test_a_machine_that_waits_for_no_software_is_told_from_one_that_does(small: Software) -> None:
    with socket.create_server((HOST, 0)) as server:

        def connect(timeout_s: float) -> socket.socket:
            stream = directly(HOST, server.getsockname()[1], timeout_s)
            other, _ = server.accept()
            other.sendall(b"\x15\x03\x03\x00\x02\x02\x46")  # An alert of TLS.
            other.close()
            return stream

        assert not small.push(connect, TIMEOUT_S)


def test_a_machine_that_is_gone_is_an_error(small: Software) -> None:
    with pytest.raises(OSError, match="refused"):
        small.push(partial(directly, HOST, free_port()), 1.0)


def test_a_machine_reads_an_archive_at_an_address(small: Software, tmp_path: Path) -> None:
    wrong = f"skyplane: what is at the address has not the SHA-256 {'ab' * 32}, or more than 2 GiB"
    for sha256, status, said in ((small.sha256, 0, ""), ("ab" * 32, 1, wrong)):
        words = [str(tmp_path / "read.zip"), sha256, Path(small.path).as_uri(), HOST, "1", "0"]
        command = [sys.executable, "-I", str(receive.__file__), *words]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        assert (done.returncode, done.stdout.strip()) == (status, said)
    assert (tmp_path / "read.zip").read_bytes() == small.open().read()


def test_all_workers_make_the_same_archive() -> None:
    own_software.cache_clear()
    software.gateway_archive.cache_clear()
    first = software.gateway_archive()
    software.gateway_archive.cache_clear()
    assert software.gateway_archive() == first
    names = zipfile.ZipFile(io.BytesIO(first)).namelist()
    assert {"skyplane_gateway/main.py", "skyplane_gateway/requirements.lock"} < set(names)
    assert "pip/__main__.py" in names
    assert not [name for name in names if name.endswith((".pyc", ".exe"))]


def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", b"")
    write_bundle(tmp_path / "new.zip", later=b"")
    for name, says in (
        ("new.zip", "has the gateway of another version"),
        ("none", "cannot be read"),
        ("text", "cannot be read"),
        ("other.zip", "is no bundle"),
    ):
        with pytest.raises(ConfigurationInvalid, match=says):
            software_in(str(tmp_path / name))


def test_a_bundle_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    first = software_in(write_bundle(path))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("wheels/b.whl", b"b")
    second = software_in(str(path))
    assert second.size_bytes == path.stat().st_size != first.size_bytes
    assert second.sha256 != first.sha256


def test_an_instance_that_has_got_its_software_is_not_enrolled_yet(
    small: Software, tmp_path: Path
) -> None:
    with receiver(small, tmp_path) as machine:
        machine.open(TIMEOUT_S).close()
        address = (HOST, machine.port)
        key_id = enrol_at(address, AUTHORITY, "aws:a/0", "launch", {}, software=lambda: small)
    assert key_id == ""
