"""Users, roles and sessions of an AWS account: who may do what with which access key.

Sessions follow "AssumeRole" and "GetFederationToken" of the API reference of STS and "Policies
and permissions in IAM: session policies" (docs.aws.amazon.com, as read on 2026-11-28): a session
may do what its policy and those of its user or role allow. Signatures are not checked.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID

from strict_clouds.aws_wire import Answer, AwsError, Request
from strict_clouds.iam import Access, Policy, PolicyInvalid, policy_of

_POLICY_CHARS: Final = 2048
_POLICY_TEXT: Final = re.compile(r"[\t\n\r -\xff]+")
#: Of a role that a role assumes, and of the credentials of a user.
_LONGEST_S: Final = 3600
_SHORTEST_S: Final = 900


@dataclass(frozen=True)
class Principal:
    """Whose key it is.

    Args:
        policies: each has to allow what is done.
        role: ARN of the role of a session; empty for users.
        expires_unix_s: infinite for the key of a user.
    """

    arn: str
    policies: tuple[Policy, ...]
    role: str = ""
    expires_unix_s: float = float("inf")

    def allows(self, access: Access) -> bool:
        return all(policy.allows(access) for policy in self.policies)


@dataclass(frozen=True)
class _Role:
    arn: str
    policy: Policy
    trusted: tuple[str, ...]


class Principals:
    """The account.

    Attributes:
        packed_chars: session policies that are longer are too large once they are packed.
        ahead_s: by how much the service's clock is ahead.
        session_policies: those that were sent, in order.
    """

    def __init__(self) -> None:
        self.packed_chars = _POLICY_CHARS
        self.ahead_s = 0.0
        self.session_policies: list[str] = []
        self._by_key: dict[str, Principal] = {}
        self._roles: dict[str, _Role] = {}

    # What tests do.

    def user(self, policy: Mapping[str, Any], name: str = "worker") -> dict[str, str]:
        """A new user with an access key, by the names of its parts."""
        arn = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:user/{name}"
        return self._key(Principal(arn, (policy_of(policy),)))

    def role(self, policy: Mapping[str, Any], *trusted: str, name: str = "reader") -> str:
        """The ARN of a new role.

        Args:
            trusted: ARNs of users and roles, and tokens of web identities, that may assume it.
        """
        arn = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/{name}"
        self._roles[arn] = _Role(arn, policy_of(policy), trusted)
        return arn

    def role_session(
        self,
        policy: Mapping[str, Any],
        name: str = "worker",
        path: str = "/",
        *,
        trusts_itself: bool,
    ) -> dict[str, str]:
        """The credentials of a session of a new role, as the platform of a worker gives them."""
        arn = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role{path}{name}"
        role = _Role(arn, policy_of(policy), (arn,) if trusts_itself else ())
        self._roles[arn] = role
        return self._session(role, ())

    # What the services do.

    def of(self, key_id: str) -> Principal | None:
        """Whose key it is; None for one that the account does not have. Raises AwsError."""
        found = self._by_key.get(key_id)
        if found is not None and self._now() >= found.expires_unix_s:
            raise AwsError("ExpiredToken", "The provided token has expired.")
        return found

    def answer(self, request: Request) -> Answer | None:
        """The answer of STS or IAM to a caller of the account; None to others. Raises AwsError."""
        parameters = request.parameters
        if request.action == "AssumeRoleWithWebIdentity" and parameters["RoleArn"] in self._roles:
            return self._assumed(str(parameters["WebIdentityToken"]), parameters, request.action)
        caller = self.of(request.key_id)
        if caller is None:
            return None
        if request.action == "GetCallerIdentity":
            inner = f"<Arn>{caller.arn}</Arn><Account>{DEFAULT_ACCOUNT_ID}</Account>"
            return _answer(request.action, inner)
        if request.action == "GetFederationToken":
            return self._federated(caller, parameters)
        if request.action == "AssumeRole":
            return self._assumed(caller.role or caller.arn, parameters, request.action)
        if request.action == "GetRole":
            roles = {one.arn.rpartition("/")[2]: one.arn for one in self._roles.values()}
            arn = roles[str(parameters["RoleName"])]
            name = arn.rpartition("/")[2]
            inner = f"<Role><Arn>{arn}</Arn><RoleName>{name}</RoleName></Role>"
            return _answer(request.action, inner)
        return None

    def _federated(self, caller: Principal, parameters: Mapping[str, Any]) -> Answer:
        if caller.expires_unix_s < float("inf"):
            raise AwsError(
                "AccessDenied", "Cannot call GetFederationToken with session credentials", 403
            )
        policy = self._session_policy(parameters)
        arn = f"arn:aws:sts::{DEFAULT_ACCOUNT_ID}:federated-user/{parameters['Name']}"
        found = Principal(arn, (*caller.policies, policy), "", self._end(parameters))
        return _answer("GetFederationToken", _credentials(self._key(found), found))

    def _assumed(self, caller: str, parameters: Mapping[str, Any], action: str) -> Answer:
        role = self._roles.get(str(parameters["RoleArn"]))
        if role is None or caller not in role.trusted:
            raise AwsError("AccessDenied", f"{caller} may not perform sts:{action}", 403)
        policies = (self._session_policy(parameters),) if "Policy" in parameters else ()
        key = self._session(role, policies, self._end(parameters))
        return _answer(action, _credentials(key, self._by_key[key["access_key_id"]]))

    def _session_policy(self, parameters: Mapping[str, Any]) -> Policy:
        text = str(parameters["Policy"])
        if len(text) > _POLICY_CHARS or not _POLICY_TEXT.fullmatch(text):
            raise AwsError("ValidationError", "the policy is too long, or has other characters")
        if len(text) > self.packed_chars:
            raise AwsError("PackedPolicyTooLarge", "Serialized policy exceeds its limit")
        self.session_policies.append(text)
        try:
            return policy_of(json.loads(text))
        except PolicyInvalid as error:
            raise AwsError("MalformedPolicyDocument", str(error)) from error

    def _end(self, parameters: Mapping[str, Any]) -> float:
        duration_s = int(parameters.get("DurationSeconds", _LONGEST_S))
        if not _SHORTEST_S <= duration_s <= _LONGEST_S:
            raise AwsError("ValidationError", "DurationSeconds exceeds the limit of a chained role")
        return self._now() + duration_s

    def _session(
        self, role: _Role, policies: tuple[Policy, ...], expires_unix_s: float | None = None
    ) -> dict[str, str]:
        name = role.arn.rpartition("/")[2]
        arn = f"arn:aws:sts::{DEFAULT_ACCOUNT_ID}:assumed-role/{name}/session"
        end = self._now() + _LONGEST_S if expires_unix_s is None else expires_unix_s
        return self._key(Principal(arn, (role.policy, *policies), role.arn, end))

    def _key(self, principal: Principal) -> dict[str, str]:
        is_user = principal.expires_unix_s == float("inf")
        key_id = ("AKIA" if is_user else "ASIA") + secrets.token_hex(8).upper()
        self._by_key[key_id] = principal
        key = {"access_key_id": key_id, "secret_access_key": secrets.token_hex(20)}
        return key if is_user else {**key, "session_token": secrets.token_hex(40)}

    def _now(self) -> float:
        return time.time() + self.ahead_s


def _credentials(key: Mapping[str, str], principal: Principal) -> str:
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(principal.expires_unix_s))
    return (
        f"<Credentials><AccessKeyId>{key['access_key_id']}</AccessKeyId>"
        f"<SecretAccessKey>{key['secret_access_key']}</SecretAccessKey>"
        f"<SessionToken>{key['session_token']}</SessionToken>"
        f"<Expiration>{end}</Expiration></Credentials>"
    )


def _answer(action: str, inner: str) -> Answer:
    """Of STS and IAM, which put the result into an element of its own."""
    body = f"<{action}Response><{action}Result>{inner}</{action}Result></{action}Response>"
    return Answer(200, body.encode(), "text/xml")
