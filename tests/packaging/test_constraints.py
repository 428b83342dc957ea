"""Every dependency that a file of `constraints/` is for is pinned, at a version that is allowed."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.matrix.beside import EDITS, Official
from tests.matrix.lines import COMMAND_LINE, CONSTRAINTS, LINES, REPOSITORY, REQUIREMENTS, Line

FOR_USERS = [line for line in (*LINES, COMMAND_LINE) if not line.is_oldest]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def pins(path: Path) -> dict[str, list[Requirement]]:
    """Pins by name; a package may have several, for different versions of Python."""
    found: dict[str, list[Requirement]] = {}
    for line in path.read_text().splitlines():
        pin = Requirement(line)
        found.setdefault(canonicalize_name(pin.name), []).append(pin)
    return found


def assert_pinned(needs: list[str], path: Path, target: str) -> None:
    found = pins(path)
    for need in map(Requirement, needs):
        if need.name == PROJECT["project"]["name"]:
            continue
        assert need.name in found, f"{need.name} is not pinned; run `make {target}`"
        for pin in found[need.name]:
            (exact,) = pin.specifier
            assert exact.operator == "=="
            assert need.specifier.contains(exact.version), f"{pin} is outside of {need}"


def test_the_tools_of_a_checkout_are_pinned() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    needs = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    # Its newest packages do not go with the newest botocore; tests make an environment for them.
    needs += chain(*(extras[extra] for extra in extras if extra != "fsspec"))
    assert_pinned(needs, CONSTRAINTS / "development.txt", "constraints")


@pytest.mark.parametrize("line", FOR_USERS, ids=lambda line: line.name)
def test_what_users_install_is_pinned_and_no_package_of_the_tests(line: Line) -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    needs = [need for extra in line.extras for need in extras[extra]]
    needs += [*PROJECT["project"]["dependencies"], *line.also]
    assert_pinned(needs, line.constraints, "matrix-pins")
    tests = {need.name for need in map(Requirement, _lines(REQUIREMENTS))}
    assert not tests & pins(line.constraints).keys()


@pytest.mark.parametrize(
    ("line", "official"),
    [(line, Official(one)) for line in LINES for one in line.beside],
    ids=lambda one: getattr(one, "release", ""),
)
def test_airflows_own_pins_are_allowed_but_for_the_lines_to_edit(
    line: Line, official: Official
) -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    needs = [*PROJECT["project"]["dependencies"], *(n for e in line.extras for n in extras[e])]
    allowed = {need.name: need.specifier for need in map(Requirement, needs)}
    refused = {
        name
        for name, version in official.pins(edited=False).items()
        if name in allowed and not allowed[name].contains(version)
    }
    assert refused == {Requirement(edit).name for edit in EDITS.get(official.release, ())}


def test_each_file_is_made_here() -> None:
    made = {line.constraints for line in FOR_USERS} | {CONSTRAINTS / "development.txt"}
    assert set(CONSTRAINTS.iterdir()) == made


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]
