"""Environments with the wheel and the packages of one extra."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from importlib.metadata import distribution
from importlib.util import cache_from_source
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

UV = Path(sys.executable).with_name("uv")


def uv(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {"UV_SYSTEM_CERTS": "1", **os.environ}
    return subprocess.run(
        [UV, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def make_environment(folder: Path) -> Path:
    """An empty environment; its interpreter."""
    made = uv("venv", "--python", sys.executable, folder)
    assert made.returncode == 0, made.stderr
    return folder / "bin" / "python"


def install(python: Path, *arguments: str | Path) -> None:
    """Install into an environment; skip the test if the package index cannot be reached."""
    done = uv("pip", "install", "--python", python, *arguments)
    if done.returncode != 0:
        skip_without_an_index(done.stderr)
    assert done.returncode == 0, done.stderr


def skip_without_an_index(output: str) -> None:
    """Skip the test if uv failed because of the network."""
    if re.search(r"Failed to fetch|error sending request|dns error", output):
        pytest.skip(f"the package index cannot be reached: {output.strip()[-200:]}")


def make_environment_with_extra(folder: Path, wheel: Path, *extras: str) -> Path:
    """An environment with the wheel and the requirements of extras; its interpreter.

    The requirements are links to the packages of this environment, whose versions are the
    pinned ones. Installing them again would compile them again, which takes most of the time.
    """
    python = make_environment(folder / "venv")
    install(python, "--no-deps", wheel)
    packages = folder / "packages"
    for name in _requirements(wheel, extras):
        _link(name, packages)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site_packages = folder / "venv" / "lib" / version / "site-packages"
    (site_packages / "linked.pth").write_text(f"{packages}\n")
    return python


def _requirements(wheel: Path, extras: Iterable[str]) -> set[str]:
    """Names of all distributions that the wheel needs with extras, by their metadata."""
    with ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    wanted = list(_applicable(metadata.get_all("Requires-Dist") or (), extras))
    seen: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        requirement = wanted.pop()
        entry = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if entry not in seen:
            seen.add(entry)
            wanted += _applicable(distribution(entry[0]).requires or (), requirement.extras)
    return {name for name, _ in seen} - {"skyplane-orchestration"}


def _applicable(texts: Iterable[str], extras: Iterable[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, texts):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": one}) for one in (*extras, "")):
            yield requirement


def _link(name: str, target: Path) -> None:
    """Link the files of an installed distribution, with their bytecode."""
    root = Path(sysconfig.get_path("purelib"))
    for file in distribution(name).files or ():
        if file.is_absolute() or ".." in file.parts:
            continue  # A script.
        paths = [root / file]
        if file.suffix == ".py":
            paths.append(Path(cache_from_source(str(root / file))))
        for path in paths:
            link = target / path.relative_to(root)
            if path.exists() and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)
