"""What codes of each cloud mean: an error of ours, and whether a repeat may help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    QuotaExceeded,
    SkyplaneError,
)
from skyplane_orchestration.provision.aws import error_mapping as aws
from skyplane_orchestration.provision.azure import error_mapping as azure
from skyplane_orchestration.provision.fleet.error_rules import ErrorResponse
from skyplane_orchestration.provision.gcp import error_mapping as gcp

_SAID: Final = "what the cloud says"


class _Cloud(NamedTuple):
    answered: Callable[..., ErrorResponse]
    translate: Callable[[ErrorResponse, str], SkyplaneError]
    action: str
    region: str

    def answer(self, code: str, status: int, message: str = _SAID, **more: Any) -> ErrorResponse:
        return self.answered(self.action, code, status, message, self.region, **more)


AWS = _Cloud(aws.response_of, aws.translate, "ec2:RunInstances", "aws:eu-west-3")
GCP = _Cloud(gcp.response_of, gcp.translate, "compute.instances.create", "gcp:us-central1")
AZURE = _Cloud(
    azure.response_of, azure.translate, "Microsoft.Compute/virtualMachines/write", "azure:eastus"
)

MEANINGS: Final = (
    (AWS, "VcpuLimitExceeded", 400, QuotaExceeded, "--quota-code L-1216C47A --region eu-west-3"),
    (AWS, "InstanceLimitExceeded", 400, QuotaExceeded, "--service-code ec2"),
    (AWS, "MaxSpotInstanceCountExceeded", 400, QuotaExceeded, "L-34B43A08"),
    (AWS, "SecurityGroupLimitExceeded", 400, QuotaExceeded, "--service-code vpc"),
    (AWS, "InsufficientInstanceCapacity", 500, CapacityUnavailable, "another instance type"),
    (AWS, "Unsupported", 400, CapacityUnavailable, "another instance type"),
    (AWS, "UnauthorizedOperation", 403, CloudAccessDenied, "allow this action"),
    (AWS, "AuthFailure", 401, CloudAccessDenied, "wrong or expired"),
    (AWS, "ExpiredToken", 400, CloudAccessDenied, "wrong or expired"),
    (AWS, "RequestLimitExceeded", 503, CloudUnavailable, "all retries"),
    (AWS, "InternalError", 500, CloudUnavailable, "all retries"),
    (AWS, "InvalidParameterValue", 400, ConfigurationInvalid, _SAID),
    (AWS, "InvalidSubnetID.NotFound", 400, ConfigurationInvalid, _SAID),
    (AWS, "SomethingNew", 400, CloudUnavailable, _SAID),
    (GCP, "quotaExceeded", 403, QuotaExceeded, f"gcp:us-central1: {_SAID}"),
    (GCP, "QUOTA_EXCEEDED", 403, QuotaExceeded, "IAM & Admin > Quotas"),
    (GCP, "ZONE_RESOURCE_POOL_EXHAUSTED", 503, CapacityUnavailable, "another instance type"),
    (GCP, "STOCKOUT", 0, CapacityUnavailable, "try again later"),
    (GCP, "forbidden", 403, CloudAccessDenied, "allow compute.instances.create"),
    (GCP, "PERMISSIONS_ERROR", 0, CloudAccessDenied, "allow compute.instances.create"),
    (GCP, "accessNotConfigured", 403, CloudAccessDenied, "gcloud services enable"),
    (GCP, "rateLimitExceeded", 403, CloudUnavailable, "all retries"),
    (GCP, "INTERNAL_ERROR", 0, CloudUnavailable, "all retries"),
    (GCP, "resourceNotReady", 400, CloudUnavailable, "all retries"),
    (GCP, "invalid", 400, ConfigurationInvalid, _SAID),
    (GCP, "conditionNotMet", 412, ConfigurationInvalid, _SAID),
    (GCP, "UNSUPPORTED_OPERATION", 0, ConfigurationInvalid, _SAID),
    (GCP, "SOMETHING_NEW", 0, CloudUnavailable, "SOMETHING_NEW"),
    (GCP, "", 401, CloudAccessDenied, "renew or correct them"),
    (GCP, "", 403, CloudAccessDenied, "forbidden"),
    (GCP, "", 404, ConfigurationInvalid, "notFound"),
    (GCP, "", 429, CloudUnavailable, "rateLimitExceeded"),
    (GCP, "", 502, CloudUnavailable, "502"),
    (AZURE, "SkuNotAvailable", 409, CapacityUnavailable, "another instance type"),
    (AZURE, "ZonalAllocationFailed", 200, CapacityUnavailable, "try again later"),
    (AZURE, "QuotaExceeded", 409, QuotaExceeded, f"azure:eastus: {_SAID}"),
    (AZURE, "PublicIPCountLimitReached", 400, QuotaExceeded, "Public IP Addresses of azure:eastus"),
    (AZURE, "ExpiredAuthenticationToken", 401, CloudAccessDenied, "wrong or expired"),
    (AZURE, "SubscriptionNotFound", 404, CloudAccessDenied, "no access to the subscription"),
    (AZURE, "AuthorizationFailed", 403, CloudAccessDenied, "virtualMachines/write"),
    (AZURE, "RequestDisallowedByPolicy", 403, ConfigurationInvalid, _SAID),
    (AZURE, "MissingSubscriptionRegistration", 409, ConfigurationInvalid, "--namespace Microsoft."),
    (AZURE, "InvalidParameter", 400, ConfigurationInvalid, _SAID),
    (AZURE, "TooManyRequests", 429, CloudUnavailable, "all retries"),
    (AZURE, "ServerBusy", 503, CloudUnavailable, "all retries"),
    (AZURE, "NotSeenBefore", 404, CloudUnavailable, _SAID),
)


@pytest.mark.parametrize(("cloud", "code", "status", "kind", "says"), MEANINGS)
def test_a_refusal_has_a_meaning(
    cloud: _Cloud, code: str, status: int, kind: type[SkyplaneError], says: str
) -> None:
    error = cloud.translate(cloud.answer(code, status), "launching x")
    assert type(error) is kind
    assert str(error).startswith("launching x: ")
    assert says in str(error)
    assert error.is_permanent == (kind in (CloudAccessDenied, ConfigurationInvalid))


@pytest.mark.parametrize(
    ("cloud", "code", "status", "is_transient"),
    [
        (AWS, "RequestLimitExceeded", 503, True),
        (AWS, "ThrottlingException", 400, True),
        (AWS, "Surprise", 502, True),
        (AWS, "InsufficientInstanceCapacity", 500, False),
        (AWS, "VcpuLimitExceeded", 400, False),
        (GCP, "rateLimitExceeded", 403, True),
        (GCP, "", 429, True),
        (GCP, "", 503, True),
        (GCP, "resourceNotReady", 400, True),
        (GCP, "quotaExceeded", 403, False),
        (GCP, "ZONE_RESOURCE_POOL_EXHAUSTED", 503, False),
        (AZURE, "AnotherOperationInProgress", 409, True),
        (AZURE, "", 500, True),
        (AZURE, "AllocationFailed", 503, False),
        (AZURE, "QuotaExceeded", 429, False),
        (AZURE, "Conflict", 409, False),
    ],
)
def test_only_faults_and_throttling_are_repeated(
    cloud: _Cloud, code: str, status: int, is_transient: bool
) -> None:
    assert cloud.answer(code, status).is_transient == is_transient


def test_the_text_of_a_cloud_decides_nothing() -> None:
    misleading = GCP.answer("invalid", 400, "Quota exceeded, permission denied, zone exhausted")
    assert type(GCP.translate(misleading, "launching")) is ConfigurationInvalid


def test_the_blob_for_administrators_is_left_out() -> None:
    said = "You are not authorized. Encoded authorization failure message: c2VjcmV0"
    text = str(AWS.translate(AWS.answer("UnauthorizedOperation", 403, said), "launching x"))
    assert "You are not authorized." in text
    assert "c2VjcmV0" not in text


def test_a_quota_that_google_names_is_named() -> None:
    named = GCP.answer("QUOTA_EXCEEDED", 0, quota="N2-CPUS-per-project-region")
    assert "the quota N2-CPUS-per-project-region is used up" in str(GCP.translate(named, "x"))


def test_only_a_launch_is_refused_for_a_quota_of_azure() -> None:
    """Azure has one code for quotas and for changes that are not allowed at the moment."""
    delete = AZURE._replace(action="Microsoft.Compute/virtualMachines/delete")
    error = AZURE.translate(delete.answer("OperationNotAllowed", 409), "ending it")
    assert isinstance(error, CloudUnavailable)
