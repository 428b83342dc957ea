"""The workflows run what the repository has, with actions that nobody can exchange."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

REPOSITORY: Final = Path(__file__).resolve().parents[2]
WORKFLOWS: Final = REPOSITORY / ".github" / "workflows"


def test_actions_are_named_by_commit_with_their_version() -> None:
    lines = [line for path in WORKFLOWS.iterdir() for line in path.read_text().splitlines()]
    uses = [line.split("uses: ")[1] for line in lines if "uses: " in line]
    assert uses
    assert [use for use in uses if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", use)] == []


def test_jobs_run_all_that_must_pass_before_a_merge() -> None:
    document: dict[str, Any] = yaml.safe_load((WORKFLOWS / "tests.yml").read_text())
    jobs = " ".join(document["jobs"]["tests"]["strategy"]["matrix"]["targets"]).split()
    # `make coverage` runs the tests of `make test`; the lines of the matrix are jobs of their own.
    here = set(re.findall(r"^make (\S+)", (REPOSITORY / ".ci" / "run").read_text(), re.MULTILINE))
    assert here - {"test", "test-matrix"} <= {*jobs, *document["jobs"]}
    assert "coverage" in jobs
    targets = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert set(jobs) <= targets


def test_before_a_commit_run_the_tools_of_make_check() -> None:
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())["repos"][0][
        "hooks"
    ]
    before = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    makefile = (REPOSITORY / "Makefile").read_text()
    check = makefile.split("\ncheck:")[1].split("\n\n")[0]
    assert before == set(re.findall(r"^\t@\$\(BIN\)/([\w-]+)", check, re.MULTILINE))
