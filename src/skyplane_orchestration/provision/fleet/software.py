"""What gateways need, as one ZIP archive: their package, pip, and perhaps wheels.

The orchestrator makes it from the files that are installed here, because gateways of a fleet need
the version of their orchestrator, which may be an editable install. pip then installs the
requirements that the package pins by hashes: from the archive's folder `wheels` if it has one, and
from a package index otherwise. The library itself stays with the orchestrator.

A machine takes an archive over TCP, and only the one whose SHA-256 its boot script has:

    orchestrator -> machine   `skyplane SHA256`, a line
    machine -> orchestrator   `send`, a line
    orchestrator -> machine   the archive
    machine -> orchestrator   `taken`, a line
"""

from __future__ import annotations

import hashlib
import io
import os
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import BinaryIO, Final

from skyplane_orchestration.errors import ConfigurationInvalid, MissingExtra, ProvisionFailed

_GATEWAY: Final = "skyplane_gateway"
#: Of the packages, what a gateway's machine uses: code, pins, and pip's certificates.
_SUFFIXES: Final = (".py", ".lock", ".pem", "py.typed")
#: Where an archive has the wheels of the pinned requirements.
WHEELS: Final = "wheels"
#: Of all entries, so that the same files give the same bytes on every worker.
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_ANSWER_BYTES: Final = 64
#: A machine that takes nothing for so long is gone.
_PROGRESS_TIMEOUT_S: Final = 30.0

#: Of the instances' operating systems: Debian 12 and 13.
PYTHONS: Final = ("3.11", "3.13")
#: Minor versions of glibc 2 whose wheels run there (PEP 600); Debian 12 has 2.36.
_GLIBC_MINORS: Final = range(17, 37)


@dataclass(frozen=True, slots=True)
class Software:
    """An archive.

    Args:
        path: its file; empty for the one that this orchestrator makes.
        sha256: 64 lower-case hex characters.
        size_bytes: of the archive.
    """

    path: str
    sha256: str
    size_bytes: int

    def open(self) -> BinaryIO:
        """Its bytes. Raises OSError."""
        return Path(self.path).open("rb") if self.path else io.BytesIO(gateway_archive())

    def push(self, open_stream: Callable[[float], socket.socket], answer_timeout_s: float) -> bool:
        """Send it to a machine that waits for it.

        Args:
            open_stream: connects with the machine within a time, in seconds. Raises OSError.
            answer_timeout_s: until it is connected, and again until it wants the archive.

        Returns:
            Whether the machine has taken it now. False: it waits for no software, or for another.

        Raises OSError: no connection, or it broke.
        """
        with ExitStack() as stack:
            stream = stack.enter_context(open_stream(answer_timeout_s))
            stream.settimeout(answer_timeout_s)
            answers = stack.enter_context(stream.makefile("rb"))
            stream.sendall(f"skyplane {self.sha256}\n".encode())
            if answers.readline(_ANSWER_BYTES) != b"send\n":
                return False
            archive = stack.enter_context(self.open())
            stream.settimeout(_PROGRESS_TIMEOUT_S)
            while part := archive.read(1 << 20):
                stream.sendall(part)
            return answers.readline(_ANSWER_BYTES) == b"taken\n"


@cache
def own_software() -> Software:
    """What this orchestrator makes of its own files. Raises MissingExtra without pip."""
    archive = gateway_archive()
    return Software("", hashlib.sha256(archive).hexdigest(), len(archive))


def software_in(path: str) -> Software:
    """A bundle of this version, as `skyplane-orch bundle` writes it.

    Raises ConfigurationInvalid.
    """
    try:
        status = Path(path).stat()
        return _software_in(path, status.st_mtime_ns, status.st_size)
    except (OSError, zipfile.BadZipFile) as error:
        raise ConfigurationInvalid(f"the bundle {path} cannot be read: {error}") from error


@cache
def _software_in(path: str, _mtime_ns: int, size_bytes: int) -> Software:
    with Path(path).open("rb") as file, zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if not any(name.startswith(f"{WHEELS}/") for name in names):
            raise ConfigurationInvalid(
                f"{path} is no bundle: it has no folder {WHEELS}; `skyplane-orch bundle` writes one"
            )
        own = dict(_sources(files(_GATEWAY), _GATEWAY))
        found = {name: archive.read(name) for name in names if name.startswith(f"{_GATEWAY}/")}
        if found != own:
            raise ConfigurationInvalid(
                f"{path} has the gateway of another version; write it again with `skyplane-orch"
                " bundle`"
            )
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256")
    return Software(path, digest.hexdigest(), size_bytes)


@cache
def gateway_archive() -> bytes:
    """The archive without wheels. Raises MissingExtra without pip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        add_packages(archive)
    return buffer.getvalue()


def add_packages(archive: zipfile.ZipFile) -> None:
    """Write the gateway's package and pip. Raises MissingExtra without pip."""
    for package in ("pip", _GATEWAY):
        try:
            folder = files(package)
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"instances install the gateway with the {package} of this machine, which has"
                f" none: install the package {package} here"
            ) from error
        for path, data in _sources(folder, package):
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


@cache
def gateway_requirements() -> str:
    """The pinned requirements of the gateway, a requirements file."""
    return files(_GATEWAY).joinpath("requirements.lock").read_text(encoding="utf-8")


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, name)
        elif entry.name.endswith(_SUFFIXES):
            yield name, entry.read_bytes()


def write_bundle(path: Path, pythons: Sequence[str] = PYTHONS) -> Software:
    """Download the wheels from this machine's package index, and write a file with them.

    The file is whole from its first moment. pip checks the hashes of all wheels.

    Args:
        pythons: versions that instances have, `3.13`.

    Raises:
        ConfigurationInvalid: the file cannot be written.
        ProvisionFailed: pip fails; the message has what it says.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pins = folder / "requirements.lock"
        pins.write_text(gateway_requirements(), encoding="utf-8")
        for python in pythons:
            for architecture in ("x86_64", "aarch64"):
                _download(pins, folder / WHEELS, python, architecture)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with zipfile.ZipFile(draft, "w") as archive:
                add_packages(archive)
                for wheel in sorted((folder / WHEELS).iterdir()):
                    archive.write(wheel, f"{WHEELS}/{wheel.name}")
            draft.rename(path)
        except OSError as error:
            raise ConfigurationInvalid(f"the bundle {path} cannot be written: {error}") from error
        finally:
            draft.unlink(missing_ok=True)
    return software_in(str(path))


def _download(pins: Path, folder: Path, python: str, architecture: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", "--require-hashes"]
    command += ["--dest", str(folder), "--requirement", str(pins), "--python-version", python]
    tags = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in _GLIBC_MINORS))
    for tag in tags:
        command += ["--platform", f"{tag}_{architecture}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [""]
        raise ProvisionFailed(
            f"pip cannot download the gateway's requirements for Python {python} on"
            f" {architecture}: {said[0]}"
        )
