"""The strict fakes as this project opens them: they refuse what the documented policy does not.

The policies are the files of `docs/reference/permissions`, so every test of a fleet tests them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import yaml

from skyplane_orchestration.provision.aws.options import ALPHABET
from strict_clouds.arm import SUBSCRIPTION, StrictArm, strict_arm
from strict_clouds.ec2 import StrictEc2, strict_ec2
from strict_clouds.gce import StrictGce, strict_gce
from strict_clouds.machines import MachineBooter

_FILES: Final = Path(__file__).parents[2] / "docs" / "reference" / "permissions"


def open_ec2(
    machines: MachineBooter | None = None, *, deployments: Iterable[str], also: Iterable[str] = ()
) -> AbstractContextManager[StrictEc2]:
    """The fake, with the policy of the documentation.

    Args:
        deployments: those whose fleets the caller may launch and end.
        also: actions that the page names for some options.
    """
    policy = aws_policy(*deployments)
    more = [{"Effect": "Allow", "Action": action, "Resource": "*"} for action in also]
    return strict_ec2(machines, {**policy, "Statement": [*policy["Statement"], *more]})


def open_account() -> AbstractContextManager[StrictEc2]:
    """An account of AWS whose users and roles have policies of their own (`principals`)."""
    return strict_ec2()


def open_gce(
    machines: MachineBooter | None = None, *, also: Iterable[str] = ()
) -> AbstractContextManager[StrictGce]:
    """Args: `also` are permissions that the page names for some options."""
    role = gcp_role()
    return strict_gce(
        machines, {**role, "includedPermissions": [*role["includedPermissions"], *also]}
    )


def open_arm(
    machines: MachineBooter | None = None, *, also: Iterable[str] = ()
) -> AbstractContextManager[StrictArm]:
    """Args: `also` are actions that the page names for some options."""
    role = azure_role()
    return strict_arm(machines, {**role, "Actions": [*role["Actions"], *also]})


def aws_policy(*deployments: str) -> dict[str, Any]:
    """The policy for deployments, whose names take the place of `DEPLOYMENT`; `*` for all."""
    text = (_FILES / "aws.json").read_text()
    names = json.dumps([one if one == "*" else ALPHABET.escaped(one) for one in deployments])
    policy: dict[str, Any] = json.loads(text.replace('"DEPLOYMENT"', names))
    return policy


def gcp_role() -> dict[str, Any]:
    """The definition of the role."""
    role: dict[str, Any] = yaml.safe_load((_FILES / "gcp.yaml").read_text())
    return role


def azure_role() -> dict[str, Any]:
    """The definition of the role, for the subscription of the fake."""
    text = (_FILES / "azure.json").read_text().replace("/SUBSCRIPTION", f"/{SUBSCRIPTION}")
    role: dict[str, Any] = json.loads(text)
    return role
