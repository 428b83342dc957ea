"""The evaluator of IAM policies, and what it refuses to evaluate."""

from __future__ import annotations

from typing import Any

import pytest

from strict_clouds.iam import Access, PolicyInvalid, policy_of

ARN = "arn:aws:ec2:eu-west-3:123456789012:instance/i-1"
TAG = "aws:ResourceTag/owner"


def allows(access: Access, **changes: Any) -> bool:
    """Whether a policy of one statement allows it."""
    statement = {"Effect": "Allow", "Action": "ec2:Run", "Resource": "*", **changes}
    return policy_of({"Version": "2012-10-17", "Statement": [statement]}).allows(access)


@pytest.mark.parametrize(
    ("pattern", "is_match"),
    [
        ("*", True),
        (ARN, True),
        ("arn:aws:ec2:*:*:instance/*", True),
        ("arn:aws:ec2:eu-west-?:*:instance/i-?", True),
        # At the end of a part it matches colons too, and within one it does not.
        ("arn:aws:ec2:*:instance/*", True),
        ("arn:aws:e*2:*:*:instance/*", True),
        ("arn:aws:e*3:123456789012:instance/*", False),
        ("arn:aws:ec2:eu?west-3:123456789012?instance/i-1", False),
        ("arn:aws:ec2:*:*:volume/*", False),
        ("arn:aws:ec2:*:*:instance", False),
        ("arn:aws:ec2:*:*:instance/I-1", False),
    ],
)
def test_wildcards_match_within_the_parts_of_an_arn(pattern: str, is_match: bool) -> None:
    assert allows(Access("ec2:Run", ARN), Resource=pattern) is is_match


def test_actions_ignore_case_and_resources_do_not_stand_for_none() -> None:
    assert allows(Access("EC2:run", ARN))
    assert allows(Access("ec2:Run"), Action=["ec2:Stop", "ec2:R*"])
    assert not allows(Access("ec2:Stop", ARN))
    assert not allows(Access("ec2:Run"), Resource=["arn:aws:ec2:*:*:instance/*"])


@pytest.mark.parametrize(
    ("condition", "context", "is_true"),
    [
        ({"StringEquals": {TAG: "me"}}, {TAG: ("me",)}, True),
        ({"StringEquals": {TAG: ["you", "me"]}}, {TAG: ("me",)}, True),
        ({"StringEquals": {TAG: "me"}}, {TAG: ("Me",)}, False),
        ({"StringEquals": {TAG: "m*"}}, {TAG: ("me",)}, False),
        ({"StringEquals": {TAG: "me"}}, {}, False),
        ({"StringLike": {TAG: "m*"}}, {TAG: ("me",)}, True),
        ({"StringLike": {TAG: "*"}}, {}, False),
        ({"StringEquals": {TAG: "me", "ec2:CreateAction": "Run"}}, {TAG: ("me",)}, False),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": "k"}}, {"aws:TagKeys": ("k",)}, True),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": "k"}}, {"aws:TagKeys": ("k", "l")}, False),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": "k"}}, {}, True),
    ],
)
def test_conditions(condition: Any, context: dict[str, tuple[str, ...]], is_true: bool) -> None:
    assert allows(Access("ec2:Run", ARN, context), Condition=condition) is is_true


@pytest.mark.parametrize(
    "changes",
    [
        {"Effect": "Deny"},
        {"NotAction": "ec2:Stop"},
        {"Principal": "*"},
        {"Condition": {"StringLike": {"ec2:CreateAction": "Run*"}}},
        {"Condition": {"StringEquals": {"aws:SourceIp": "10.0.0.1"}}},
        {"Condition": {"StringEquals": {"aws:ResourceTag/": "me"}}},
        {"Condition": {"StringEquals": {"aws:TagKeys": "k"}}},
        {"Condition": {"ForAllValues:StringEquals": {TAG: "me"}}},
        {"Condition": {"StringEquals": {TAG: "${aws:username}"}}},
    ],
)
def test_what_cannot_be_evaluated_is_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(PolicyInvalid):
        allows(Access("ec2:Run"), **changes)


@pytest.mark.parametrize("document", [{}, {"Version": "2008-10-17", "Statement": []}])
def test_other_documents_are_errors(document: dict[str, Any]) -> None:
    with pytest.raises(PolicyInvalid):
        policy_of(document)
