"""Every dependency of the project is pinned, at a version that the project allows."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@pytest.fixture
def pins(repository: Path) -> dict[str, list[Requirement]]:
    """Pins by name; a package may have several, for different versions of Python."""
    found: dict[str, list[Requirement]] = {}
    for line in (repository / "constraints.txt").read_text().splitlines():
        pin = Requirement(line)
        found.setdefault(canonicalize_name(pin.name), []).append(pin)
    return found


def test_every_dependency_is_pinned_within_its_bounds(
    repository: Path, pins: dict[str, list[Requirement]]
) -> None:
    document = tomllib.loads((repository / "pyproject.toml").read_text())
    project = document["project"]
    extras = project["optional-dependencies"].values()
    needs = [*document["build-system"]["requires"], *project["dependencies"], *chain(*extras)]
    for need in map(Requirement, needs):
        if need.name == project["name"]:
            continue
        assert need.name in pins, f"{need.name} is not pinned; run `make constraints`"
        for pin in pins[need.name]:
            (exact,) = pin.specifier
            assert exact.operator == "=="
            assert need.specifier.contains(exact.version), f"{pin} is outside of {need}"
