"""Writes a bundle: the software of instances with all wheels of its pinned requirements."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid, ProvisionFailed
from skyplane_orchestration.provision.fleet.software import (
    WHEELS,
    Software,
    add_packages,
    gateway_requirements,
    software_in,
)

#: Of the instances' operating systems: Debian 12 and 13.
PYTHONS: Final = ("3.11", "3.13")
_ARCHITECTURES: Final = ("x86_64", "aarch64")
#: Minor versions of glibc 2 whose wheels run there (PEP 600); Debian 12 has 2.36.
_GLIBC_MINORS: Final = range(17, 37)


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
            for architecture in _ARCHITECTURES:
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
