"""Sessions of AWS that reach the places of a job only, for gateways.

An IAM user gets one by `GetFederationToken`, a role by `AssumeRole` of itself. A role that is not
assumed yet is assumed with the policy. The session policy takes away: the session may do what both
the caller and the policy allow. Policies follow the IAM JSON policy reference and "Actions,
resources, and condition keys for Amazon S3" of the Service Authorization Reference
(docs.aws.amazon.com, 2026-11).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from skyplane_gateway.common.errors import CredentialsTooWide
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores.reach import Reach, widened
from skyplane_gateway.stores.s3.client import answered_credentials
from skyplane_gateway.stores.s3.credentials import (
    assumed,
    assuming,
    credentials_of,
    open_service,
    sendable_credentials,
)
from skyplane_gateway.stores.s3.endpoints import has_sessions
from skyplane_gateway.stores.s3.error_mapping import code_of, mapped
from skyplane_gateway.stores.s3.sdk import BadAnswer

if TYPE_CHECKING:
    from mypy_boto3_sts.type_defs import CredentialsTypeDef

log = logging.getLogger(__name__)

#: Roles of IAM Identity Center; nobody may edit whom they trust.
_SSO_ROLES: Final = "AWSReservedSSO_"
#: Arguments of STS for a role that limit its session already. A second policy would not limit it
#: further: a session may do what any of its policies allows.
_OWN_POLICIES: Final = frozenset({"Policy", "PolicyArns"})
#: Regions of other partitions; their keys are not known elsewhere.
_OTHER_PARTITIONS: Final = ("cn-", "us-gov-", "us-iso")

#: The longest session of a role that assumes itself (AWS, "role chaining").
_DURATION_S: Final = 3600
#: Characters of a session policy.
_POLICY_CHARS: Final = 2048
_NAME: Final = "skyplane"
_CALLER: Final = re.compile(r"arn:(?P<partition>[^:]+):(iam|sts)::(?P<account>\d+):(?P<who>.+)")

_READ: Final = (
    "s3:GetObject",
    "s3:GetObjectLegalHold",
    "s3:GetObjectRetention",
    "s3:GetObjectTagging",
)
_WRITE: Final = (
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
    "s3:ListMultipartUploadParts",
    "s3:PutObject",
    "s3:PutObjectTagging",
)
_SPECIAL: Final = re.compile(r"[*?$]")
#: AWS does not tell how policies compare other characters, nor takes all of them.
_UNUSUAL: Final = re.compile(r"[^ -~]+")

#: Asks for a session with a policy.
_Call = Callable[[str], "CredentialsTypeDef"]


def limited_credentials(found: Credentials, reaches: Sequence[Reach]) -> Credentials:
    """Credentials of a session that reaches these places only. 2 calls to STS, seldom more.

    1 call for a role that is not assumed yet (`role_arn`, see `sendable_credentials`). The same
    credentials for the endpoint of another service, which has no sessions.

    Raises:
        CredentialsTooWide: there is no such session for them; the message has what to allow.
        StoreError: STS does not accept them, or does not answer.
    """
    if not has_sessions(reaches[0].store.endpoint_url):
        _warn_of_whole_keys(_urls(reaches))
        return found
    if role := found.get("role_arn"):
        if _OWN_POLICIES.isdisjoint(json.loads(found.get("role_arguments", "{}"))):
            # AWS itself says what is no ARN.
            partition = role.removeprefix("arn:").partition(":")[0]
            with assuming(role):
                return credentials_of(_within_limits(partial(assumed, found), partition, reaches))
        found = sendable_credentials(found)
    region = reaches[0].store.region or ""
    region = region if region.startswith(_OTHER_PARTITIONS) else ""
    with (
        mapped("asking AWS STS for a session"),
        answered_credentials(),
        closing(_Caller({**found, "region": region})) as caller,
    ):
        return credentials_of(caller.session(reaches))


@lru_cache(maxsize=1024)
def _warn_of_whole_keys(places: str) -> None:
    """Once, though keys are sent again and again."""
    log.warning(
        "gateways get the keys for %s as they are, because that service has no sessions: make the"
        " keys no wider than the job",
        places,
    )


class _Caller:
    """Whose credentials these are, and the session that they can have. Close it."""

    def __init__(self, values: dict[str, str]) -> None:
        """Raises ClientError, BotoCoreError."""
        self._values = values
        # Any: two services of one SDK.
        self._sts: Any = open_service("sts", values, is_signed=True)
        self.close = self._sts.close
        try:
            self.arn = str(self._sts.get_caller_identity()["Arn"])
            found = _CALLER.fullmatch(self.arn)
            if found is None:
                raise BadAnswer(why="names no caller")
        except BaseException:
            self.close()
            raise
        self._partition, self._account = found["partition"], found["account"]
        # `assumed-role/ROLE/SESSION`, `user/PATH/NAME` or `root`.
        self._kind, self._role = [*found["who"].split("/"), ""][:2]

    def session(self, reaches: Sequence[Reach]) -> CredentialsTypeDef:
        """Raises CredentialsTooWide, ClientError, BotoCoreError."""
        why = f"AWS gives no further session to the temporary credentials of {self.arn}"
        needed = "name instance_profile, or use an access key or a role that may assume itself"
        for call, line in self._ways():
            try:
                return _within_limits(call, self._partition, reaches)
            except ClientError as error:
                if code_of(error) != "AccessDenied":
                    raise
                why, needed = f"AWS refuses {self.arn} such a session", line
        raise CredentialsTooWide.of(_urls(reaches), why, needed)

    def _ways(self) -> Iterator[tuple[_Call, str]]:
        """What to try, and what to allow if it is refused."""
        if self._kind == "assumed-role" and not self._role.startswith(_SSO_ROLES):
            role = f"arn:{self._partition}:iam::{self._account}:role/{self._role}"
            # The session does not tell the path of its role.
            if_path = "and, if the role has a path, allow it iam:GetRole on itself"
            yield partial(self._assumed, role), f"{_trust(role)}; {if_path}"
            whole = self._role_arn()
            if whole not in ("", role):
                yield partial(self._assumed, whole), _trust(whole)
        elif not self._values.get("session_token"):
            user = f"arn:{self._partition}:sts::{self._account}:federated-user/{_NAME}"
            needed = f"allow {self.arn} the action sts:GetFederationToken on {user}"
            yield self._federated, needed

    def _federated(self, policy: str) -> CredentialsTypeDef:
        given = {"Name": _NAME, "Policy": policy, "DurationSeconds": _DURATION_S}
        found: CredentialsTypeDef = self._sts.get_federation_token(**given)["Credentials"]
        return found

    def _assumed(self, role: str, policy: str) -> CredentialsTypeDef:
        given = {"RoleArn": role, "RoleSessionName": _NAME, "DurationSeconds": _DURATION_S}
        found: CredentialsTypeDef = self._sts.assume_role(Policy=policy, **given)["Credentials"]
        return found

    def _role_arn(self) -> str:
        """With its path, if the role may look at itself; else empty."""
        try:
            with closing(open_service("iam", self._values, is_signed=True)) as iam:
                return str(iam.get_role(RoleName=self._role)["Role"]["Arn"])
        except (ClientError, BotoCoreError) as error:
            log.debug("the role %s may not look at itself: %s", self._role, error)
            return ""


def _trust(role: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"AWS": role}, "Action": "sts:AssumeRole"}
    return f"add to the trust policy of the role: {json.dumps(statement)}"


def _urls(reaches: Sequence[Reach]) -> str:
    return ", ".join(one.urls for one in reaches)


def _within_limits(call: _Call, partition: str, reaches: Sequence[Reach]) -> CredentialsTypeDef:
    """A session for these places, or for wider ones if AWS takes no policy as long as theirs.

    Raises ClientError, BotoCoreError.
    """
    wider: Sequence[Reach] | None = reaches
    while wider is not None:
        policy = session_policy(wider, partition)
        try:
            found = call(policy) if len(policy) <= _POLICY_CHARS else None
        except ClientError as error:
            # Only AWS knows how long a policy is once it is packed.
            if code_of(error) != "PackedPolicyTooLarge":
                raise
            found = None
        if found is not None:
            if wider != reaches:
                log.warning(
                    "the keys of %s are too long for a session policy: the credentials of the"
                    " gateways reach %s",
                    _urls(reaches),
                    _urls(wider),
                )
            return found
        wider = widened(wider)
    raise BadAnswer(why="takes no policy for a whole bucket")


def session_policy(reaches: Sequence[Reach], partition: str = "aws") -> str:
    """The policy that allows what a gateway does in these places, as JSON.

    Raises CredentialsTooWide: AWS has no policy for a place of this kind.
    """
    statements = [row for one in reaches for row in _statements(one, partition)]
    # Buckets may have keys of KMS; the caller's own policies say which.
    actions = ["kms:Decrypt"]
    if any(one.writes for one in reaches):
        actions.append("kms:GenerateDataKey")
    only_s3 = {"StringLike": {"kms:ViaService": "s3.*.amazonaws.com*"}}
    statements.append(_allowed(actions, "*", only_s3))
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _statements(reach: Reach, partition: str) -> list[dict[str, Any]]:
    bucket = reach.store.bucket
    if bucket.endswith("--x-s3"):
        # Requests to a directory bucket have a session of their own, for the whole bucket.
        is_reader = {"StringEquals": {"s3express:SessionMode": "ReadOnly"}}
        arn = f"arn:{partition}:s3express:*:*:bucket/{bucket}"
        return [_allowed(["s3express:CreateSession"], arn, None if reach.writes else is_reader)]
    arn, objects = f"arn:{partition}:s3:::{bucket}", f"arn:{partition}:s3:::{bucket}/"
    if bucket.startswith("arn:"):
        if bucket.split(":")[2] != "s3":
            raise CredentialsTooWide.of(
                reach.urls,
                "no session is known that is limited to an access point of this kind",
                "name its bucket",
            )
        arn, objects = bucket, f"{bucket}/object/"
    if bucket.endswith("-s3alias"):
        raise CredentialsTooWide.of(
            reach.urls,
            "policies do not take the alias of an access point",
            "give the access point's ARN, or its bucket, or instance_profile",
        )
    keys = [escaped(one) + "*" for one in reach.folders] + [escaped(one) for one in reach.keys]
    actions = [*_READ, *(_WRITE if reach.writes else ())]
    if reach.writes and reach.store.option("acl"):
        actions.append("s3:PutObjectAcl")
    # A request that names no prefix has no such key.
    listed = None if "" in reach.folders else {"StringLike": {"s3:prefix": keys}}
    found = [
        _allowed(actions, [objects + key for key in keys]),
        _allowed(["s3:ListBucket"], arn, listed),
    ]
    if reach.writes:
        # It has no condition on prefixes, so the names of all uploads can be seen.
        found.append(_allowed(["s3:ListBucketMultipartUploads"], arn))
    return found


def _allowed(
    actions: list[str], resource: str | list[str], condition: dict[str, Any] | None = None
) -> dict[str, Any]:
    found = {"Effect": "Allow", "Action": actions, "Resource": resource}
    return {**found, "Condition": condition} if condition else found


def escaped(text: str) -> str:
    """A text as a pattern of a policy that fits it, and nothing else if it is printable ASCII."""
    return _UNUSUAL.sub("*", _SPECIAL.sub(r"${\g<0>}", text))
