"""Every fake of this project holds its callers to the documented policies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.clouds.fakes import aws_policy

from strict_clouds.iam import policy_of

#: Tests of the fakes themselves.
_OWN = ("tests/strict_clouds/", "tests/clouds/")


def test_no_other_module_opens_a_fake(repository: Path) -> None:
    names = re.compile(r"\b(?:strict_ec2|strict_gce|strict_arm)\b")
    roots = ("tests", "bench", "example_dags")
    paths = [path for root in roots for path in (repository / root).rglob("*.py")]
    found = {str(path.relative_to(repository)) for path in paths if names.search(path.read_text())}
    assert "tests/clouds/fakes.py" in found
    assert [name for name in sorted(found) if not name.startswith(_OWN)] == []


@pytest.mark.parametrize("deployment", ["prod", "prod eu=*"])
def test_the_policy_is_for_the_deployment_as_its_tag_has_it(deployment: str) -> None:
    policy = policy_of(aws_policy(deployment))
    named = {
        value
        for statement in policy.statements
        for condition in statement.conditions
        for value in condition.values
        if condition.key.endswith("/skyplane:deployment")
    }
    assert named == {"prod" if deployment == "prod" else "prod eu=3d=2a"}
