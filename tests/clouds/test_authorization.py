"""The policy of the documentation, against AWS's own reference of actions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clouds.authorization import violations_of
from tests.clouds.fakes import aws_policy


def test_the_documented_policy_names_what_exists() -> None:
    assert violations_of(aws_policy("prod")) == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ({"Action": "ec2:RunInstance"}, ["there is no ec2:RunInstance"]),
        (
            {"Action": "ec2:TerminateInstances", "Resource": "arn:aws:ec2:*:*:volume/*"},
            [
                "no action of a statement is about arn:aws:ec2:*:*:volume/*",
                "ec2:TerminateInstances needs a instance",
            ],
        ),
        (
            {
                "Action": "ec2:TerminateInstances",
                "Condition": {"StringEquals": {"aws:RequestTag/mine": "yes"}},
            },
            ["ec2:TerminateInstances has no aws:RequestTag/mine for a instance"],
        ),
        (
            {
                "Action": "ec2:DescribeInstances",
                "Condition": {"StringEquals": {"aws:ResourceTag/mine": "yes"}},
            },
            ["ec2:DescribeInstances has no aws:ResourceTag/mine for a request"],
        ),
    ],
)
def test_what_iam_would_accept_and_never_allow(statement: dict[str, Any], said: list[str]) -> None:
    policy = {"Statement": [{"Effect": "Allow", "Resource": "*", **statement}]}
    assert violations_of(policy) == said
