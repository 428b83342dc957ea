"""What refusals of Google Cloud mean: by reason and status, never by text.

Google's own text is only shown. Answers of HTTP have reasons as `quotaExceeded`, and operations
have codes as `QUOTA_EXCEEDED`.
"""

from __future__ import annotations

from typing import Final

from skyplane_orchestration.errors import CloudAccessDenied, QuotaExceeded, SkyplaneError
from skyplane_orchestration.provision.fleet.error_rules import ErrorResponse, no_capacity, otherwise

#: Method of the API -> permissions that it needs; the first is the one that errors name. The custom
#: role in the documentation has exactly these, and a test compares the two.
PERMISSIONS: Final[dict[str, tuple[str, ...]]] = {
    "disks.aggregatedList": ("compute.disks.list",),
    "disks.delete": ("compute.disks.delete",),
    "firewalls.delete": ("compute.firewalls.delete", "compute.networks.updatePolicy"),
    "firewalls.get": ("compute.firewalls.get",),
    "firewalls.insert": ("compute.firewalls.create", "compute.networks.updatePolicy"),
    "firewalls.list": ("compute.firewalls.list",),
    "firewalls.patch": ("compute.firewalls.update", "compute.networks.updatePolicy"),
    "globalOperations.wait": ("compute.globalOperations.get",),
    "instances.aggregatedList": ("compute.instances.list",),
    "instances.delete": ("compute.instances.delete",),
    "instances.get": ("compute.instances.get",),
    "instances.getSerialPortOutput": ("compute.instances.getSerialPortOutput",),
    "instances.insert": (
        "compute.instances.create",
        "compute.disks.create",
        "compute.disks.setLabels",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setTags",
        "compute.subnetworks.use",
    ),
    "instances.setLabels": ("compute.instances.setLabels",),
    "machineTypes.aggregatedList": ("compute.machineTypes.list",),
    "projects.get": ("compute.projects.get",),
    "regions.list": ("compute.regions.list",),
    "zoneOperations.wait": ("compute.zoneOperations.get",),
}

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
_TRANSIENT: Final = frozenset(
    {
        "BACKEND_ERROR",
        "INTERNAL_ERROR",
        "OPERATION_RATE_EXCEEDED",
        "RATE_LIMIT_EXCEEDED",
        "concurrentLimitExceeded",
        "operationRateExceeded",
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "backendError",
        "internalError",
    }
)
#: Quota -> series of machine types that count against it. Google tells no quotas of newer series.
SERIES: Final = {
    "CPUS": ("e2-", "f1-", "g1-", "n1-"),
    "E2_CPUS": ("e2-",),
    "N2_CPUS": ("n2-",),
    "N2D_CPUS": ("n2d-",),
    "C2_CPUS": ("c2-",),
    "C2D_CPUS": ("c2d-",),
    "C3_CPUS": ("c3-",),
    "T2A_CPUS": ("t2a-",),
    "T2D_CPUS": ("t2d-",),
}
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


def response_of(
    permission: str,
    code: str,
    status: int,
    message: str,
    where: str,
    *,
    quota: str = "",
    metric: str = "",
) -> ErrorResponse:
    """A refusal of Google Cloud.

    Args:
        permission: the one that the call needs, `compute.instances.create`.
        code: reason of HTTP or code of an operation; empty for what its status stands for.
        where: region tag, or the project.
        metric: what the quota counts, `compute.googleapis.com/n2_cpus`.
    """
    code = code or _BY_STATUS.get(status, "")
    is_known = code in _QUOTA or code in NO_CAPACITY
    is_transient = code in _TRANSIENT | NOT_READY or (
        not is_known and (status >= 500 or status == 429)
    )
    return ErrorResponse(permission, code, status, message, where, is_transient, quota, metric)


def translate(answer: ErrorResponse, what: str) -> SkyplaneError:
    """The error for a refusal; `what` begins its message."""
    code = answer.code
    said = f"{what}: Google Cloud refuses ({code or answer.status})"
    if code in _QUOTA:
        series = SERIES.get(answer.metric.rpartition("/")[2].upper(), ())
        name = f"the quota {answer.quota}" if answer.quota else "this quota"
        return QuotaExceeded(
            f"{said} in {answer.where}: {answer.message}; {name} is used up: end other instances,"
            " plan with fewer, or ask for more in the Google Cloud console under IAM & Admin >"
            " Quotas",
            # Most answers name it in their text only.
            quota=answer.quota or answer.message,
            series=series[0] if len(series) == 1 else "",
        )
    if code in NO_CAPACITY:
        return no_capacity(said)
    if answer.status == 401:
        return CloudAccessDenied(
            f"{said}; the credentials are wrong or expired, or this machine's clock is wrong: renew"
            f" or correct them ({answer.message})",
            of_credentials=True,
        )
    if code in ("accessNotConfigured", "SERVICE_DISABLED"):
        return CloudAccessDenied(
            f"{said}; enable this API for the project with `gcloud services enable`"
            f" ({answer.message})"
        )
    if not answer.is_transient and (code in _NOT_ALLOWED or answer.status == 403):
        return CloudAccessDenied(
            f"{said}; allow {answer.action} to the credentials ({answer.message})"
        )
    # A policy of the organisation is refused with the reason of stale fingerprints.
    is_invalid = code in _INVALID | NOT_FOUND | STALE or answer.status in (400, 404, 412)
    return otherwise(answer, said, is_invalid=is_invalid)
