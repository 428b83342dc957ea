"""What refusals of Google Cloud become, by reason and status."""

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
from skyplane_orchestration.provision.gcp.errors import Answer, translate


def answer(code: str, status: int = 0, message: str = "Google's text") -> Answer:
    return Answer("compute.instances.create", code, status, message, "gcp:us-central1")


@pytest.mark.parametrize(
    ("code", "status", "kind", "said"),
    [
        ("quotaExceeded", 403, QuotaExceeded, "gcp:us-central1: Google's text"),
        ("QUOTA_EXCEEDED", 403, QuotaExceeded, "IAM & Admin > Quotas"),
        ("ZONE_RESOURCE_POOL_EXHAUSTED", 503, CapacityUnavailable, "another instance type"),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", 0, CapacityUnavailable, "try again later"),
        ("STOCKOUT", 0, CapacityUnavailable, "try again later"),
        ("authError", 401, CloudAccessDenied, "renew or correct them"),
        ("forbidden", 403, CloudAccessDenied, "allow compute.instances.create"),
        ("PERMISSIONS_ERROR", 0, CloudAccessDenied, "allow compute.instances.create"),
        ("accessNotConfigured", 403, CloudAccessDenied, "gcloud services enable"),
        ("rateLimitExceeded", 403, CloudUnavailable, "all retries"),
        ("RATE_LIMIT_EXCEEDED", 0, CloudUnavailable, "all retries"),
        ("backendError", 503, CloudUnavailable, "all retries"),
        ("INTERNAL_ERROR", 0, CloudUnavailable, "all retries"),
        ("resourceNotReady", 400, CloudUnavailable, "all retries"),
        ("invalid", 400, ConfigurationInvalid, "Google's text"),
        ("notFound", 404, ConfigurationInvalid, "Google's text"),
        ("conditionNotMet", 412, ConfigurationInvalid, "Google's text"),
        ("UNSUPPORTED_OPERATION", 0, ConfigurationInvalid, "Google's text"),
        ("SOMETHING_NEW", 0, CloudUnavailable, "SOMETHING_NEW"),
        ("", 401, CloudAccessDenied, "authError"),
        ("", 403, CloudAccessDenied, "forbidden"),
        ("", 404, ConfigurationInvalid, "notFound"),
        ("", 429, CloudUnavailable, "rateLimitExceeded"),
        ("", 502, CloudUnavailable, "502"),
    ],
)
def test_a_refusal_becomes_an_error(
    code: str, status: int, kind: type[SkyplaneError], said: str
) -> None:
    error = translate(answer(code, status), "launching gcp:us-central1/0")
    assert type(error) is kind
    assert str(error).startswith("launching gcp:us-central1/0: ")
    assert said in str(error)


def test_the_text_of_google_decides_nothing() -> None:
    misleading = answer("invalid", 400, "Quota exceeded, permission denied, zone exhausted")
    assert type(translate(misleading, "launching")) is ConfigurationInvalid


def test_a_quota_that_google_names_is_named() -> None:
    named = Answer("", "QUOTA_EXCEEDED", 0, "", "gcp:us-central1", "N2-CPUS-per-project-region")
    assert "the quota N2-CPUS-per-project-region is used up" in str(translate(named, "launching"))


@pytest.mark.parametrize(
    ("code", "status", "is_transient"),
    [
        ("rateLimitExceeded", 403, True),
        ("", 429, True),
        ("", 503, True),
        ("backendError", 500, True),
        ("resourceNotReady", 400, True),
        ("quotaExceeded", 403, False),
        ("ZONE_RESOURCE_POOL_EXHAUSTED", 503, False),
        ("forbidden", 403, False),
    ],
)
def test_only_faults_that_pass_are_tried_again(code: str, status: int, is_transient: bool) -> None:
    assert answer(code, status).is_transient == is_transient
