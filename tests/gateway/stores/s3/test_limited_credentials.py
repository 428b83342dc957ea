"""Sessions that reach the places of a job only, on a fake that evaluates their policies."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings, strategies as st
from tests.clouds.fakes import open_account
from tests.gateway.stores.all_verbs import COPYING, read_all, write_all

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    CredentialsExpired,
    CredentialsTooWide,
    NotFound,
    PermissionDenied,
)
from skyplane_gateway.common.objects import Credentials, ObjectAttributes, Precondition
from skyplane_gateway.stores import (
    ObjectStore,
    Reach,
    StoreSpec,
    ambient_credentials,
    limited_credentials,
)
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_gateway.stores.s3.limited_credentials import escaped, session_policy
from strict_clouds.ec2 import StrictEc2
from strict_clouds.iam import Access, policy_of

BUCKET: Final = "places"
LOOKS: Final = {"Effect": "Allow", "Action": "sts:GetCallerIdentity", "Resource": "*"}
EVERYTHING: Final = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
}
OWN, OTHER, BESIDE = "in/$*?'\"/", "other/", "in/"
#: What keys and prefixes can hold.
KEYS: Final = st.text(
    st.one_of(st.sampled_from("*?$\"'{}\\/ :%ü日\n"), st.characters()), max_size=12
)
ASCII: Final = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictEc2]:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with open_account() as made:
        for service in ("STS", "IAM"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", made.url)
        admin = client_of("s3", user(made), made.url)
        admin.create_bucket(Bucket=BUCKET)
        for folder in (OWN, OTHER, BESIDE):
            admin.put_object(Bucket=BUCKET, Key=f"{folder}a", Body=b"body")
        yield made
        for row in admin.list_objects_v2(Bucket=BUCKET)["Contents"]:
            admin.delete_object(Bucket=BUCKET, Key=row["Key"])
        admin.delete_bucket(Bucket=BUCKET)


def spec_of(ec2: StrictEc2, bucket: str = BUCKET) -> StoreSpec:
    return StoreSpec("s3", bucket, endpoint_url=ec2.url, region="us-east-1")


def client_of(service: Any, credentials: Credentials, url: str) -> Any:
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id=credentials["access_key_id"],
        aws_secret_access_key=credentials["secret_access_key"],
        aws_session_token=credentials.get("session_token"),
    )


def user(ec2: StrictEc2, *statements: Any) -> Credentials:
    policy = {**EVERYTHING, "Statement": list(statements)} if statements else EVERYTHING
    return Credentials(ec2.principals.user(policy))


def role(
    ec2: StrictEc2, path: str = "/", name: str = "worker", *, trusts_itself: bool = True
) -> Credentials:
    made = ec2.principals.role_session(EVERYTHING, name, path, trusts_itself=trusts_itself)
    return Credentials(made)


def role_with_path(ec2: StrictEc2) -> Credentials:
    return role(ec2, "/service-role/")


def named_role(ec2: StrictEc2, arguments: Any = None, **more: str) -> Credentials:
    """A role that is not assumed yet and does not trust itself."""
    arn = ec2.principals.role(EVERYTHING, "arn:aws:iam::123456789012:user/worker", "a token")
    text = json.dumps({"RoleSessionName": "airflow", **(arguments or {})})
    return Credentials({**user(ec2), "role_arn": arn, "role_arguments": text, **more})


def role_by_token(ec2: StrictEc2, path: Path) -> Credentials:
    path.write_text("a token")
    return named_role(ec2, web_identity_token_file=str(path))


def upload(store: ObjectStore, key: str) -> None:
    upload_id = store.create_upload(key)
    part = store.put_part(key, upload_id, 1, b"x", offset=0, crc32c=crc32c(b"x"))
    assert list(store.list_uploads(key))
    assert store.list_parts(key, upload_id)
    store.complete_upload(key, upload_id, [part], size_bytes=1)
    store.abort_upload(key, store.create_upload(key))


def is_allowed(call: Callable[[], Any]) -> bool:
    try:
        call()
    except PermissionDenied:
        return False
    return True


CALLERS: Final = pytest.mark.parametrize("caller", [user, role, role_with_path, named_role])
#: What a gateway tries -> whether sources and sinks may.
ATTEMPTS: Final[dict[str, tuple[Callable[[ObjectStore], Any], bool, bool]]] = {
    "read its own": (lambda store: store.head(f"{OWN}a"), True, True),
    "read another": (lambda store: store.head(f"{OTHER}a"), False, False),
    "read the folder above": (lambda store: store.head(f"{BESIDE}a"), False, False),
    "write its own": (lambda store: store.put(f"{OWN}b", b""), False, True),
    "upload its own": (lambda store: upload(store, f"{OWN}c"), False, True),
    "delete its own": (lambda store: store.delete(f"{OWN}b"), False, True),
    "write another": (lambda store: store.put(f"{OTHER}b", b""), False, False),
    "delete another": (lambda store: store.delete(f"{OTHER}a"), False, False),
    "list its own": (lambda store: list(store.list(OWN)), True, True),
    "list another": (lambda store: list(store.list(OTHER)), False, False),
    "list all": (lambda store: list(store.list("")), False, False),
}


@CALLERS
@pytest.mark.parametrize("writes", [False, True])
def test_a_session_reaches_its_places_only(
    ec2: StrictEc2, caller: Callable[[StrictEc2], Credentials], writes: bool
) -> None:
    found = limited_credentials(caller(ec2), [Reach(spec_of(ec2), (OWN,), writes=writes)])
    assert set(found) == {"access_key_id", "secret_access_key", "session_token", "expires_at"}
    store = open_without_retries(spec_of(ec2), found)
    got = {name: is_allowed(partial(call, store)) for name, (call, *_) in ATTEMPTS.items()}
    assert got == {name: expected[writes] for name, (_, *expected) in ATTEMPTS.items()}


@CALLERS
def test_a_session_launches_nothing_and_gets_no_other_session(
    ec2: StrictEc2, caller: Callable[[StrictEc2], Credentials]
) -> None:
    whole = caller(ec2)
    found = limited_credentials(whole, [Reach(spec_of(ec2), (OWN,), writes=True)])
    launch = {"ImageId": "ami-01234567", "InstanceType": "c7gn.large", "MinCount": 1, "MaxCount": 1}
    for credentials, code in ((whole, "DryRunOperation"), (found, "UnauthorizedOperation")):
        client = client_of("ec2", credentials, ec2.url)
        with pytest.raises(ClientError, match=code):
            client.run_instances(**launch, DryRun=True)
    with pytest.raises((CredentialsTooWide, PermissionDenied)):
        limited_credentials(found, [Reach(spec_of(ec2), (OTHER,), writes=True)])


def test_a_role_that_is_not_assumed_yet_needs_no_trust_in_itself(
    ec2: StrictEc2, tmp_path: Path
) -> None:
    """Its first session has the policy; there is no whole one."""
    reach = Reach(spec_of(ec2), (OWN,))
    for found in (named_role(ec2), role_by_token(ec2, tmp_path / "token")):
        asked = len(ec2.calls), len(ec2.principals.session_policies)
        limited = limited_credentials(found, [reach])
        # A token signs nothing, so its call is of no service.
        assert len(ec2.calls) - asked[0] == ("web_identity_token_file" not in found)
        assert len(ec2.principals.session_policies) - asked[1] == 1
        store = open_without_retries(reach.store, limited)
        assert is_allowed(partial(store.head, f"{OWN}a"))
        assert not is_allowed(partial(store.head, f"{OTHER}a"))


def test_a_pod_of_eks_needs_no_trust_in_its_own_role(
    ec2: StrictEc2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = role_by_token(ec2, tmp_path / "token")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_ROLE_ARN", named["role_arn"])
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", named["web_identity_token_file"])
    whole = ambient_credentials("s3")
    assert whole is not None
    with pytest.raises(CredentialsTooWide, match="trust policy of the role"):
        limited_credentials(whole, [Reach(spec_of(ec2), (OWN,))])
    found = ambient_credentials("s3", is_unassumed=True)
    assert found is not None
    limited = limited_credentials(found, [Reach(spec_of(ec2), (OWN,))])
    store = open_without_retries(spec_of(ec2), limited)
    assert is_allowed(partial(store.head, f"{OWN}a"))
    assert not is_allowed(partial(store.head, f"{OTHER}a"))
    # Keys come first, as in botocore's chain.
    for name, value in user(ec2).items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    found = ambient_credentials("s3", is_unassumed=True)
    assert found is not None
    assert "role_arn" not in found


@pytest.mark.parametrize(
    "own",
    [
        {"Policy": json.dumps(EVERYTHING)},
        {"PolicyArns": [{"arn": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}]},
    ],
)
def test_policies_of_the_user_for_a_role_are_kept(ec2: StrictEc2, own: Any) -> None:
    """One more policy in the same call would take their place, or add to what they allow."""
    found, reach = named_role(ec2, arguments=own), Reach(spec_of(ec2), (OWN,))
    with pytest.raises(CredentialsTooWide, match="trust policy of the role"):
        limited_credentials(found, [reach])


def test_a_role_that_may_not_be_assumed_is_named(ec2: StrictEc2) -> None:
    found = {**named_role(ec2), "role_arn": "arn:aws:iam::123456789012:role/other"}
    with pytest.raises(PermissionDenied, match=r"assuming the role .*role/other"):
        limited_credentials(Credentials(found), [Reach(spec_of(ec2), (OWN,))])


#: What S3 asks for no request: with them, its answers to HEAD tell more.
TOLD: Final = {"s3:GetObjectLegalHold", "s3:GetObjectRetention"}


@pytest.mark.parametrize("writes", [False, True])
def test_a_policy_allows_what_the_store_sends_and_nothing_else(
    ec2: StrictEc2, writes: bool
) -> None:
    """With each option that has a right of its own, and the source's side of a copy by S3."""
    admin = client_of("s3", user(ec2), ec2.url)
    admin.put_object(Bucket=BUCKET, Key=f"{OTHER}big", Body=bytes(5 * 2**20))
    kept = {"tags": "keep", "acl": "bucket-owner-full-control"}
    spec = replace(spec_of(ec2), options=tuple(kept.items()))
    source = Reach(spec_of(ec2), (OTHER,))
    reaches = [Reach(spec, (OWN,), writes=True, keeps_tags=True), source]
    if not writes:
        reaches = [Reach(spec, (OWN,), keeps_tags=True)]
    found = limited_credentials(user(ec2), reaches)
    store = open_without_retries(spec, found)
    asked = len(ec2.accesses)
    if writes:
        attributes = ObjectAttributes(metadata=(("a", "b"),), tags=(("c", "d"),))
        etag = admin.head_object(Bucket=BUCKET, Key=f"{OTHER}big")["ETag"]
        big = CopySource(source.store, f"{OTHER}big", etag, 0, 5 * 2**20)
        assert write_all(store, OWN, attributes, big) == COPYING
    else:
        read_all(store, OWN, f"{OWN}a")
    sent = {one.action for one in ec2.accesses[asked:]}
    (policy,) = ec2.principals.session_policies[-1:]
    rows = json.loads(policy)["Statement"]
    allowed = {one for row in rows for one in row["Action"] if one.startswith("s3:")}
    assert sent <= allowed
    assert allowed - sent == TOLD


@pytest.mark.parametrize("writes", [False, True])
def test_keys_of_kms_are_used_by_s3_only(writes: bool) -> None:
    policy = policy_of(json.loads(session_policy([Reach(StoreSpec("s3", "b"), writes=writes)])))
    key = "arn:aws:kms:eu-west-1:123456789012:key/of-the-bucket"

    def may(action: str, via: str) -> bool:
        return policy.allows(Access(action, key, {"kms:ViaService": (via,)}))

    assert may("kms:Decrypt", "s3.eu-west-1.amazonaws.com")
    assert may("kms:Decrypt", "s3.cn-north-1.amazonaws.com.cn")
    # SSE-KMS and DSSE-KMS need both for parts of an upload.
    assert may("kms:GenerateDataKey", "s3.eu-west-1.amazonaws.com") is writes
    assert not may("kms:Decrypt", "ec2.eu-west-1.amazonaws.com")
    assert not policy.allows(Access("kms:Decrypt", key))


def test_a_missing_key_is_missing_for_a_session_too(ec2: StrictEc2) -> None:
    found = limited_credentials(user(ec2), [Reach(spec_of(ec2), (OWN,), writes=True)])
    store = open_without_retries(spec_of(ec2), found)
    with pytest.raises(NotFound):
        store.head(f"{OWN}none")
    with pytest.raises(NotFound):
        store.read(f"{OWN}none", offset=0, length=1, if_match=None)
    with pytest.raises(PermissionDenied):
        store.head(f"{OTHER}none")
    assert store.put(f"{OWN}new", b"", precondition=Precondition(if_absent=True))


def test_single_keys_and_two_buckets(ec2: StrictEc2) -> None:
    admin = client_of("s3", user(ec2), ec2.url)
    admin.create_bucket(Bucket="second")
    admin.put_object(Bucket="second", Key="x", Body=b"")
    first = Reach(spec_of(ec2), ("jobs/",), (f"{OWN}a",), writes=True)
    second = Reach(spec_of(ec2, "second"), keys=("x",))
    found = limited_credentials(role(ec2), [first, second])
    store, other = (open_without_retries(one.store, found) for one in (first, second))
    store.check(first.tried_prefix)
    store.put("jobs/1", b"")
    store.put(f"{OWN}a", b"")
    other.head("x")
    assert not is_allowed(lambda: store.put(f"{OWN}ab", b""))
    assert not is_allowed(lambda: other.put("x", b""))
    assert not is_allowed(lambda: other.head("y"))


def test_a_session_lives_an_hour(ec2: StrictEc2) -> None:
    whole, reach = user(ec2), Reach(spec_of(ec2), (OWN,))
    first = limited_credentials(whole, [reach])
    ec2.principals.ahead_s = 2700
    second = limited_credentials(whole, [reach])
    assert 2690 < int(second["expires_at"]) - int(first["expires_at"]) < 2710
    ec2.principals.ahead_s = 3601
    assert is_allowed(lambda: open_without_retries(reach.store, second).head(f"{OWN}a"))
    with pytest.raises(CredentialsExpired):
        open_without_retries(reach.store, first).head(f"{OWN}a")


@pytest.mark.parametrize(
    ("caller", "line"),
    [
        (
            lambda ec2: user(ec2, LOOKS),
            "allow arn:aws:iam::123456789012:user/worker the action sts:GetFederationToken on"
            " arn:aws:sts::123456789012:federated-user/skyplane",
        ),
        (
            lambda ec2: role(ec2, trusts_itself=False),
            'add to the trust policy of the role: {"Effect": "Allow", "Principal": {"AWS":'
            ' "arn:aws:iam::123456789012:role/worker"}, "Action": "sts:AssumeRole"}; and, if the'
            " role has a path, allow it iam:GetRole on itself",
        ),
        (
            lambda ec2: role(ec2, "/service-role/", trusts_itself=False),
            ':role/service-role/worker"}, "Action": "sts:AssumeRole"}; or let gateways',
        ),
        (
            # Nobody may edit whom such a role trusts.
            lambda ec2: role(ec2, "/aws-reserved/", "AWSReservedSSO_a_1", trusts_itself=False),
            "assumed-role/AWSReservedSSO_a_1/session; name instance_profile, or use an access key",
        ),
    ],
)
def test_what_gets_no_session_is_refused_with_the_line_to_add(
    ec2: StrictEc2, caller: Callable[[StrictEc2], Credentials], line: str
) -> None:
    with pytest.raises(CredentialsTooWide) as refused:
        limited_credentials(caller(ec2), [Reach(spec_of(ec2), (OWN,))])
    for part in (line, f"s3://{BUCKET}/{OWN}", "gateway_credentials to whole"):
        assert part in str(refused.value)


@pytest.mark.parametrize("packed_chars", [2048, 500])
def test_a_prefix_that_is_too_long_for_a_policy_is_shortened(
    ec2: StrictEc2, caplog: pytest.LogCaptureFixture, packed_chars: int
) -> None:
    ec2.principals.packed_chars = packed_chars
    parts = [OWN + "*" * 150 + "/", "?" * 150 + "/", "?" * 150 + "/"]
    with caplog.at_level(logging.WARNING):
        found = limited_credentials(user(ec2), [Reach(spec_of(ec2), ("".join(parts),))])
    kept = OWN + "*" * 150 + "/" if packed_chars == 2048 else OWN
    assert caplog.messages == [
        f"the keys of s3://{BUCKET}/{''.join(parts)} are too long for a session policy: the"
        f" credentials of the gateways reach s3://{BUCKET}/{kept}"
    ]
    store = open_without_retries(spec_of(ec2), found)
    assert is_allowed(lambda: list(store.list("".join(parts))))
    assert not is_allowed(lambda: list(store.list(OTHER)))


@pytest.mark.parametrize("sts", ["", "https://sts.eu-west-1.amazonaws.com"])
def test_other_services_have_no_sessions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, sts: str
) -> None:
    """Theirs are not asked of AWS; one warning for a place says that the keys are sent."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts)
    keys = Credentials({"access_key_id": "a", "secret_access_key": "b"})
    spec = StoreSpec("s3", BUCKET, endpoint_url="http://127.0.0.1:1")
    for _ in range(2):
        assert limited_credentials(keys, [Reach(spec, (f"{sts}/",))]) is keys
    assert [text.partition(" as they are")[0] for text in caplog.messages] == [
        f"gateways get the keys for s3://{BUCKET}/{sts}/"
    ]


def test_an_access_point_and_a_directory_bucket_have_arns_of_their_own() -> None:
    point = "arn:aws:s3:eu-west-1:123456789012:accesspoint/mine"
    read = policy_of(json.loads(session_policy([Reach(StoreSpec("s3", point), ("a/",))])))
    assert read.allows(Access("s3:GetObject", f"{point}/object/a/b"))
    assert read.allows(Access("s3:ListBucket", point, {"s3:prefix": ("a/",)}))
    assert not read.allows(Access("s3:GetObject", f"{point}/object/b"))
    fast = StoreSpec("s3", "fast--use1-az4--x-s3")
    arn = "arn:aws:s3express:us-east-1:123456789012:bucket/fast--use1-az4--x-s3"
    mode = {"s3express:SessionMode": ("ReadWrite",)}
    for writes in (False, True):
        found = policy_of(json.loads(session_policy([Reach(fast, ("a/",), writes=writes)])))
        assert found.allows(Access("s3express:CreateSession", arn, mode)) is writes
    with pytest.raises(CredentialsTooWide, match="give the access point's ARN"):
        session_policy([Reach(StoreSpec("s3", f"mine-{'a' * 34}-s3alias"), ("",))])
    with pytest.raises(CredentialsTooWide, match="name its bucket"):
        session_policy([Reach(StoreSpec("s3", point.replace(":s3:", ":s3-object-lambda:")), ("",))])


@settings(deadline=None)
@given(KEYS, KEYS)
def test_a_policy_fits_the_keys_below_its_prefix(folder: str, rest: str) -> None:
    reach = Reach(StoreSpec("s3", BUCKET), (f"{folder}/",))
    policy = policy_of(json.loads(session_policy([reach])))
    assert policy.allows(Access("s3:GetObject", f"arn:aws:s3:::{BUCKET}/{folder}/{rest}"))
    listing = {"s3:prefix": (f"{folder}/{rest}",)}
    assert policy.allows(Access("s3:ListBucket", f"arn:aws:s3:::{BUCKET}", listing))


@settings(deadline=None)
@given(ASCII, KEYS)
def test_a_policy_of_printable_ascii_fits_its_own_key_only(text: str, other: str) -> None:
    reach = Reach(StoreSpec("s3", BUCKET), keys=(text,))
    policy = policy_of(json.loads(session_policy([reach])))
    arn = f"arn:aws:s3:::{BUCKET}/"
    assert policy.allows(Access("s3:GetObject", arn + text))
    assert policy.allows(Access("s3:GetObject", arn + other)) is (text == other)


def test_only_other_characters_stand_for_any() -> None:
    assert escaped("a*?$b") == "a${*}${?}${$}b"
    assert escaped("aé/日本/\n") == "a*/*/*"
