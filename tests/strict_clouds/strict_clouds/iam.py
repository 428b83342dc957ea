"""Identity policies of AWS: which request they allow.

It follows the IAM JSON policy reference (docs.aws.amazon.com/IAM/latest/UserGuide,
"reference_policies_elements_resource", "..._condition_operators", "..._variables" and
"..._condition-single-vs-multi-valued-context-keys", as read on 2026-11-25), for the parts that
policies of fleets and of their sessions need. Everything else in a document is an error, so nothing
is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_EQUALS: Final = "StringEquals"
_LIKE: Final = "StringLike"
#: Also true if the request has no value.
_ALL_EQUAL: Final = "ForAllValues:StringEquals"
#: Operator -> the condition keys that it may compare; those that end with `/` begin with it.
_KEYS: Final = {
    _EQUALS: (
        *("aws:RequestTag/", "aws:ResourceTag/", "ec2:CreateAction", "iam:PassedToService"),
        "s3express:SessionMode",
    ),
    _LIKE: ("aws:RequestTag/", "aws:ResourceTag/", "s3:prefix", "kms:ViaService"),
    # The only one of them that may have several values in a request.
    _ALL_EQUAL: ("aws:TagKeys",),
}
_VERSION: Final = "2012-10-17"
#: A variable of a policy, or one character.
_TOKENS: Final = re.compile(r"\$\{[^}]*\}|.", re.DOTALL)
#: Variables that stand for what they name.
_LITERALS: Final = {"${*}": "*", "${?}": "?", "${$}": "$"}


class PolicyInvalid(ValueError):
    """A policy has something that the fake cannot evaluate."""


@dataclass(frozen=True, slots=True)
class Access:
    """One thing that IAM is asked for a request.

    Args:
        action: `ec2:RunInstances`.
        resource: its ARN; `*` for an action without resources.
        context: condition key -> its values; a key that the request lacks is not there.
    """

    action: str
    resource: str = "*"
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Condition:
    """An operator, a key and its values, of which one has to be that of the request."""

    operator: str
    key: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        known = _KEYS.get(self.operator)
        if known is None:
            raise PolicyInvalid(f"the strict fake has no operator {self.operator}")
        if not any(
            self.key.startswith(one) and self.key != one if one.endswith("/") else self.key == one
            for one in known
        ):
            raise PolicyInvalid(f"the strict fake cannot compare {self.key} by {self.operator}")
        for value in self.values:
            if self.operator == _LIKE:
                _expression(value, ".*", ".")
            elif "${" in value:
                raise PolicyInvalid(f"the strict fake has no variables in {self.operator}: {value}")

    def holds(self, access: Access) -> bool:
        asked = access.context.get(self.key, ())
        if self.operator == _LIKE:
            patterns = [_expression(value, ".*", ".") for value in self.values]
            return any(re.fullmatch(one, text, re.DOTALL) for one in patterns for text in asked)
        is_equal = all(value in self.values for value in asked)
        return is_equal and (bool(asked) or self.operator == _ALL_EQUAL)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that allows."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[Condition, ...]

    def allows(self, access: Access) -> bool:
        return (
            any(_matches(one.lower(), access.action.lower()) for one in self.actions)
            and any(_matches(one, access.resource) for one in self.resources)
            and all(one.holds(access) for one in self.conditions)
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """What no statement allows is refused."""

    statements: tuple[Statement, ...]

    def allows(self, access: Access) -> bool:
        return any(statement.allows(access) for statement in self.statements)


def policy_of(document: Mapping[str, Any]) -> Policy:
    """The policy of a JSON document.

    Raises PolicyInvalid: it has an element, an operator or a condition key that the fake does not
    know, `Deny` and `NotAction` among them.
    """
    _require_names(document, {"Version", "Statement"}, optional={"Id"})
    if document["Version"] != _VERSION:
        raise PolicyInvalid(f"the strict fake knows policies of version {_VERSION} only")
    statements = document["Statement"]
    return Policy(
        tuple(map(_statement, [statements] if isinstance(statements, Mapping) else statements))
    )


def _statement(entry: Mapping[str, Any]) -> Statement:
    _require_names(entry, {"Effect", "Action", "Resource"}, optional={"Sid", "Condition"})
    if entry["Effect"] != "Allow":
        raise PolicyInvalid(f"the strict fake has no effect {entry['Effect']}")
    return Statement(
        entry.get("Sid", ""),
        _listed(entry["Action"]),
        _listed(entry["Resource"]),
        tuple(
            Condition(operator, key, _listed(values))
            for operator, compared in entry.get("Condition", {}).items()
            for key, values in compared.items()
        ),
    )


def _require_names(entry: Mapping[str, Any], wanted: set[str], optional: set[str]) -> None:
    if not wanted <= set(entry) <= wanted | optional:
        raise PolicyInvalid(f"the strict fake wants {wanted}, and has {set(entry)}")


def _listed(values: str | list[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)


def _matches(pattern: str, text: str) -> bool:
    """`*` and `?` stay inside a part between colons, but for a `*` at the end of one."""
    return re.fullmatch(_expression(pattern, "[^:]*", "[^:]"), text, re.DOTALL) is not None


def _expression(pattern: str, many: str, one: str) -> str:
    """The regular expression of a pattern.

    Args:
        many, one: those of `*` and `?` before a character other than a colon.
    """
    tokens = _TOKENS.findall(pattern)
    found = []
    for token, after in zip(tokens, [*tokens, ""][1:], strict=True):
        if token == "*":
            found.append(".*" if after in ("", ":") else many)
        elif token == "?":
            found.append(one)
        elif len(token) > 1 and token not in _LITERALS:
            raise PolicyInvalid(f"the strict fake has no variable {token}")
        else:
            found.append(re.escape(_LITERALS.get(token, token)))
    return "".join(found)
