"""What refusals of Google Cloud mean: by reason and status, never by text.

Google's own text is only shown. A refusal with one of the codes that a caller expects is a
`Refusal`, which never leaves this package. Answers of HTTP have reasons as `quotaExceeded`, and
operations have codes as `QUOTA_EXCEEDED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    QuotaExceeded,
    SkyplaneError,
)
from skyplane_orchestration.provision.gcp.quotas import only_series

EXISTS: Final = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS"})
NOT_FOUND: Final = frozenset({"notFound", "RESOURCE_NOT_FOUND"})
IN_USE: Final = frozenset({"resourceInUseByAnotherResource", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"})
#: A fingerprint is no longer the one of the resource.
STALE: Final = frozenset({"conditionNotMet", "CONDITION_NOT_MET"})
#: Another operation changes the resource.
NOT_READY: Final = frozenset({"resourceNotReady", "RESOURCE_NOT_READY"})
#: No such instance in this zone now.
NO_CAPACITY: Final = frozenset(
    {
        "RESOURCE_POOL_EXHAUSTED",
        "STOCKOUT",
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "resourcePoolExhausted",
        "stockout",
        "zoneResourcePoolExhausted",
        "zoneResourcePoolExhaustedWithDetails",
    }
)
_QUOTA: Final = frozenset({"QUOTA_EXCEEDED", "LIMIT_EXCEEDED", "quotaExceeded", "limitExceeded"})
_THROTTLED: Final = frozenset(
    {
        "OPERATION_RATE_EXCEEDED",
        "RATE_LIMIT_EXCEEDED",
        "concurrentLimitExceeded",
        "operationRateExceeded",
        "rateLimitExceeded",
        "userRateLimitExceeded",
    }
)
_TRANSIENT: Final = frozenset({"BACKEND_ERROR", "INTERNAL_ERROR", "backendError", "internalError"})
_NOT_ENABLED: Final = frozenset({"accessNotConfigured", "SERVICE_DISABLED"})
_NOT_ALLOWED: Final = frozenset({"PERMISSIONS_ERROR", "forbidden", "insufficientPermissions"})
_INVALID: Final = frozenset(
    {
        "INVALID_FIELD_VALUE",
        "UNSUPPORTED_OPERATION",
        "badRequest",
        "invalid",
        "invalidParameter",
        "invalidUsage",
        "required",
    }
)
#: Reasons of answers that have none, as those of a proxy, by status.
_BY_STATUS: Final = {
    400: "badRequest",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "alreadyExists",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A refusal as Google Cloud sent it.

    Args:
        permission: the one that the call needs, `compute.instances.create`.
        code: reason of HTTP or code of an operation; empty for none.
        status: of HTTP; 0 for an operation without one.
        message: Google's text.
        where: region tag, or the project.
        quota: name of the quota, if Google names it apart from its text.
        metric: what that quota counts, `compute.googleapis.com/n2_cpus`.
    """

    permission: str
    code: str
    status: int
    message: str
    where: str
    quota: str = ""
    metric: str = ""

    @property
    def reason(self) -> str:
        """The code, or the one that the status stands for."""
        return self.code or _BY_STATUS.get(self.status, "")

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed in a moment."""
        known = self.reason in _QUOTA or self.reason in NO_CAPACITY
        return self.reason in _THROTTLED | _TRANSIENT | NOT_READY or (
            not known and (self.status >= 500 or self.status == 429)
        )


class Refusal(Exception):
    """A refusal that the caller expects."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.permission}: {answer.reason}")
        self.answer = answer
        self.code = answer.reason


def translate(answer: Answer, what: str) -> SkyplaneError:
    """The error for a refusal; `what` begins its message."""
    code = answer.reason
    said = f"{what}: Google Cloud refuses ({code or answer.status})"
    if code in _QUOTA:
        return QuotaExceeded(
            f"{said} in {answer.where}: {answer.message}; {_quota_advice(answer)}",
            # Most answers name it in their text only.
            quota=answer.quota or answer.message,
            series=only_series(answer.metric),
        )
    if code in NO_CAPACITY:
        return CapacityUnavailable(
            f"{said}; try again later, or plan with another instance type or region"
        )
    if answer.status == 401:
        return CloudAccessDenied(
            f"{said}; the credentials are wrong or expired, or this machine's clock is wrong: renew"
            f" or correct them ({answer.message})",
            of_credentials=True,
        )
    if code in _NOT_ENABLED:
        return CloudAccessDenied(
            f"{said}; enable this API for the project with `gcloud services enable`"
            f" ({answer.message})"
        )
    if answer.is_transient:
        return CloudUnavailable(f"{said} and all retries; try again later")
    if code in _NOT_ALLOWED or answer.status == 403:
        return CloudAccessDenied(
            f"{said}; allow {answer.permission} to the credentials ({answer.message})"
        )
    # A policy of the organisation is refused with the reason of stale fingerprints.
    if code in _INVALID | NOT_FOUND | STALE or answer.status in (400, 404, 412):
        return ConfigurationInvalid(f"{said}: {answer.message}")
    return CloudUnavailable(f"{said}: {answer.message}")


def _quota_advice(answer: Answer) -> str:
    name = f"the quota {answer.quota}" if answer.quota else "this quota"
    return (
        f"{name} is used up: end other instances, plan with fewer, or ask for more in the Google"
        " Cloud console under IAM & Admin > Quotas"
    )
