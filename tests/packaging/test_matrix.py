"""The workflow runs each line of the matrix on each Python that the line supports."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from tests.matrix.lines import LINES, Line


def test_the_workflow_has_every_line_and_python(repository: Path) -> None:
    workflow = yaml.safe_load((repository / ".github/workflows/tests.yml").read_text())
    matrix = workflow["jobs"]["matrix"]["strategy"]["matrix"]
    left_out = {(row["line"], row["python"]) for row in matrix["exclude"]}
    run = set(product(matrix["line"], matrix["python"])) - left_out
    assert run == {(line.name, python) for line in LINES for python in line.pythons}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_pins_keep_a_line_on_its_releases(line: Line) -> None:
    rows = [row for row in line.constraints.read_text().splitlines() if re.match(r"[a-z0-9]", row)]
    pinned = {each.name: each for each in map(Requirement, rows)}
    for release in map(Requirement, line.releases):
        (version,) = pinned[release.name].specifier
        assert release.specifier.contains(version.version)
