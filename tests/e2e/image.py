"""Builds the gateway's image, without Docker and without a registry."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.apt_tools import require_tools
from tests.e2e import container_tool
from tests.e2e.container_tool import SEARCH_PATH, podman, storage_options

REPOSITORY: Final = Path(__file__).parents[2]
NAME: Final = "localhost/skyplane-gateway"
_BASE: Final = "localhost/python-base"
#: Names the base image, where a registry or a mirror can be reached.
BASE_VARIABLE: Final = "PYTHON_IMAGE"
#: Debian 12 has Python 3.11.
_DEBIAN: Final = "bookworm"
_PACKAGES: Final = "python3-minimal,python3-venv,ca-certificates"
_CERTIFICATES: Final = "/etc/ssl/certs"
_TOOLS: Final = ("buildah", "podman", "runc", "mmdebstrap")


@dataclass(frozen=True)
class Image:
    """A built image, in a storage of its own.

    Args:
        reference: name and digest.
        size_bytes: of all its layers.
        base_bytes: of the base image among that.
    """

    storage: Path
    reference: str
    size_bytes: int
    base_bytes: int

    def podman(self, *arguments: str) -> str:
        """The output of a command of podman."""
        return _output([*podman(self.storage), *arguments])

    @property
    def configuration(self) -> dict[str, Any]:
        (found,) = json.loads(self.podman("image", "inspect", self.reference))
        configuration: dict[str, Any] = found
        return configuration

    def program(self) -> str:
        """A `podman` for fake machines, which runs this image."""
        tool = f"{sys.executable} -I -S {container_tool.__file__}"
        return f"#!/bin/sh\nexec {tool} '{self.storage}' \"$@\"\n"


@contextlib.contextmanager
def built_or_skip(folder: Path) -> Iterator[Image]:
    """Build the image; containers and storage are gone afterwards."""
    require_tools({tool: tool for tool in _TOOLS})
    folder.mkdir()
    try:
        yield _built(folder)
    finally:
        subprocess.run([*podman(folder), "rm", "--all", "--force"], check=False)
        shutil.rmtree(folder)


def _built(folder: Path) -> Image:
    base = os.environ.get(BASE_VARIABLE) or _make_base(folder)
    options = ["--format", "docker", "--network", "host", "--build-arg", f"PYTHON_IMAGE={base}"]
    if Path(_CERTIFICATES).is_dir():
        # A proxy may sign TLS with a certificate that only this machine knows.
        options += ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"]
        options += ["--build-arg", f"PIP_CERT={_CERTIFICATES}/ca-certificates.crt"]
    _build(folder, REPOSITORY, NAME, "-f", str(REPOSITORY / "gateway" / "Dockerfile"), *options)
    found = {name: _inspect(folder, name) for name in (NAME, base)}
    return Image(
        folder,
        f"{NAME}@{found[NAME]['Digest']}",
        found[NAME]["Size"],
        found[base]["Size"],
    )


def _make_base(folder: Path) -> str:
    context = folder / "base"
    context.mkdir()
    options = ["--variant=minbase", "--mode=root", f"--include={_PACKAGES}", "--quiet"]
    _run(["mmdebstrap", *options, _DEBIAN, str(context / "base.tar")])
    (context / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
    _build(folder, context, _BASE)
    shutil.rmtree(context)
    return _BASE


def _build(folder: Path, context: Path, name: str, *options: str) -> None:
    command = ["buildah", *storage_options(folder), "bud", "--isolation", "chroot", *options]
    _run([*command, "--tag", name, str(context)])


def _inspect(folder: Path, name: str) -> dict[str, Any]:
    (found,) = json.loads(_output([*podman(folder), "image", "inspect", name]))
    document: dict[str, Any] = found
    return document


def _output(command: list[str]) -> str:
    return _run(command).stdout


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": SEARCH_PATH}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr[-4000:]}"
    return done
