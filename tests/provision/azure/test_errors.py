"""What codes of Azure mean."""

from __future__ import annotations

import pytest

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    QuotaExceeded,
)
from skyplane_orchestration.provision.azure.errors import Answer, translate

DELETE = "Microsoft.Compute/virtualMachines/delete"
ACTION = "Microsoft.Compute/virtualMachines/write"


def an_answer(status: int, code: str) -> Answer:
    return Answer(ACTION, code, status, "what Azure says", "azure:eastus")


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (409, "SkuNotAvailable", CapacityUnavailable, "another instance type"),
        (200, "ZonalAllocationFailed", CapacityUnavailable, "another instance type"),
        (200, "OverconstrainedAllocationRequest", CapacityUnavailable, "try again"),
        (409, "QuotaExceeded", QuotaExceeded, "azure:eastus: what Azure says"),
        (400, "PublicIPCountLimitReached", QuotaExceeded, "Public IP Addresses of azure:eastus"),
        (401, "ExpiredAuthenticationToken", CloudAccessDenied, "wrong or expired"),
        (404, "SubscriptionNotFound", CloudAccessDenied, "no access to the subscription"),
        (403, "AuthorizationFailed", CloudAccessDenied, ACTION),
        (403, "LinkedAuthorizationFailed", CloudAccessDenied, "what Azure says"),
        (403, "RequestDisallowedByPolicy", CloudAccessDenied, "what Azure says"),
        (
            409,
            "MissingSubscriptionRegistration",
            ConfigurationInvalid,
            "register --namespace Microsoft.Compute",
        ),
        (400, "InvalidParameter", ConfigurationInvalid, "what Azure says"),
        (429, "TooManyRequests", CloudUnavailable, "all retries"),
        (503, "ServerBusy", CloudUnavailable, "all retries"),
        (404, "NotSeenBefore", CloudUnavailable, "what Azure says"),
    ],
)
def test_a_refusal_has_a_meaning(status: int, code: str, kind: type[Exception], says: str) -> None:
    error = translate(an_answer(status, code), "launching x")
    assert type(error) is kind
    assert str(error).startswith("launching x: Azure refuses Microsoft.Compute/")
    assert says in str(error)


@pytest.mark.parametrize(
    ("status", "code", "is_transient"),
    [
        (429, "TooManyRequests", True),
        (409, "AnotherOperationInProgress", True),
        (500, "", True),
        (503, "AllocationFailed", False),
        (429, "QuotaExceeded", False),
        (409, "Conflict", False),
    ],
)
def test_some_may_succeed_in_a_moment(status: int, code: str, is_transient: bool) -> None:
    assert an_answer(status, code).is_transient == is_transient


def test_only_a_launch_is_refused_for_a_quota() -> None:
    """Azure has one code for quotas and for changes that are not allowed at the moment."""
    answer = Answer(DELETE, "OperationNotAllowed", 409, "what Azure says", "azure:eastus")
    error = translate(answer, "ending it")
    assert isinstance(error, CloudUnavailable)
    assert "what Azure says" in str(error)
