"""What AWS's codes mean."""

from __future__ import annotations

import pytest

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    QuotaExceeded,
    SkyplaneError,
)
from skyplane_orchestration.provision.aws.errors import Answer, translate


def answer(code: str, status: int = 400, message: str = "because") -> Answer:
    return Answer("ec2:RunInstances", code, status, message, "aws:eu-west-3")


@pytest.mark.parametrize(
    ("code", "kind", "is_permanent"),
    [
        ("VcpuLimitExceeded", QuotaExceeded, False),
        ("InstanceLimitExceeded", QuotaExceeded, False),
        ("MaxSpotInstanceCountExceeded", QuotaExceeded, False),
        ("SecurityGroupLimitExceeded", QuotaExceeded, False),
        ("InsufficientInstanceCapacity", CapacityUnavailable, False),
        ("Unsupported", CapacityUnavailable, False),
        ("UnauthorizedOperation", CloudAccessDenied, True),
        ("AuthFailure", CloudAccessDenied, True),
        ("ExpiredToken", CloudAccessDenied, True),
        ("RequestLimitExceeded", CloudUnavailable, False),
        ("InternalError", CloudUnavailable, False),
        ("InvalidParameterValue", ConfigurationInvalid, True),
        ("InvalidSubnetID.NotFound", ConfigurationInvalid, True),
        ("SomethingNew", CloudUnavailable, False),
    ],
)
def test_a_code_decides(code: str, kind: type[SkyplaneError], is_permanent: bool) -> None:
    error = translate(answer(code), "launching x")
    assert type(error) is kind
    assert error.is_permanent == is_permanent
    assert str(error).startswith("launching x: AWS refuses ec2:RunInstances (")
    assert code in str(error)


def test_a_quota_is_named_with_the_way_to_ask_for_more() -> None:
    text = str(translate(answer("VcpuLimitExceeded"), "launching x"))
    assert "L-1216C47A" in text
    assert "request-service-quota-increase --service-code ec2 --quota-code L-1216C47A" in text
    assert "--region eu-west-3" in text


def test_the_blob_for_administrators_is_left_out() -> None:
    said = "You are not authorized. Encoded authorization failure message: c2VjcmV0"
    text = str(translate(answer("UnauthorizedOperation", 403, said), "launching x"))
    assert "You are not authorized." in text
    assert "c2VjcmV0" not in text


@pytest.mark.parametrize(
    ("code", "status", "is_transient"),
    [
        ("RequestLimitExceeded", 503, True),
        ("ThrottlingException", 400, True),
        ("InternalError", 500, True),
        ("Surprise", 502, True),
        ("InsufficientInstanceCapacity", 500, False),
        ("VcpuLimitExceeded", 400, False),
        ("InvalidParameterValue", 400, False),
    ],
)
def test_only_faults_and_throttling_are_repeated(
    code: str, status: int, is_transient: bool
) -> None:
    assert answer(code, status).is_transient == is_transient
