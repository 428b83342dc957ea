"""What refusals of AWS mean: by code and status, never by text.

AWS's own text is only shown.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from skyplane_orchestration.errors import CloudAccessDenied, QuotaExceeded, SkyplaneError
from skyplane_orchestration.provision.fleet.error_rules import ErrorResponse, no_capacity, otherwise

_TRANSIENT: Final = frozenset(
    {
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        # ---- faults
        "InternalError",
        "InternalFailure",
        "InternalServiceError",
        "RequestTimeout",
        "ServerInternal",
        "ServiceException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Unavailable",
    }
)
#: No such instance in this zone now: those of "Error codes for the Amazon EC2 API" (as read on
#: 2026-11-26) whose remedy is another zone or a wait.
NO_CAPACITY: Final = frozenset(
    {
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
        "Unsupported",
    }
)
_BAD_CREDENTIALS: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_NOT_ALLOWED: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "Blocked",
        "OperationNotPermitted",
        "OptInRequired",
        "PendingVerification",
        "UnauthorizedOperation",
    }
)
#: vCPUs of running instances of the families A, C, D, H, I, M, R, T and Z.
ON_DEMAND_QUOTA: Final = "L-1216C47A"
SPOT_QUOTA: Final = "L-34B43A08"
_ON_DEMAND: Final = ("ec2", ON_DEMAND_QUOTA, "Running On-Demand Standard instances")
#: Code -> service, code and name of the quota.
_QUOTAS: Final = {
    "InstanceLimitExceeded": _ON_DEMAND,
    "VcpuLimitExceeded": _ON_DEMAND,
    "MaxSpotInstanceCountExceeded": ("ec2", SPOT_QUOTA, "All Standard Spot Instance Requests"),
    "SecurityGroupLimitExceeded": ("vpc", "L-E79EC296", "VPC security groups per Region"),
    "RulesPerSecurityGroupLimitExceeded": (
        "vpc",
        "L-0EA8095F",
        "Inbound or outbound rules per security group",
    ),
    "NetworkInterfaceLimitExceeded": ("vpc", "L-DF5E4CA3", "Network interfaces per Region"),
    "VolumeLimitExceeded": ("ebs", "L-7A658B76", "Storage for General Purpose SSD (gp3) volumes"),
}
#: The blob that follows in refusals is for administrators, who can decode it.
_BLOB: Final = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)


def response_of(action: str, code: str, status: int, message: str, where: str) -> ErrorResponse:
    """A refusal of AWS.

    Args:
        action: as IAM names it, `ec2:RunInstances`.
        where: tag of the region that was asked.
    """
    is_known = code in NO_CAPACITY or code in _QUOTAS
    is_transient = code in _TRANSIENT or (status >= 500 and not is_known)
    return ErrorResponse(action, code, status, message, where, is_transient)


def translate(answer: ErrorResponse, what: str) -> SkyplaneError:
    """The error for a refusal; `what` begins its message."""
    code = answer.code
    said = f"{what}: AWS refuses {answer.action} ({code})"
    message = _BLOB.sub("", answer.message).strip()
    if code in _QUOTAS:
        service, quota, name = _QUOTAS[code]
        region = answer.where
        return QuotaExceeded(
            f"{said}; the quota {quota} ({name}) of {region} is used up: end other instances, plan"
            " with fewer, or ask for more with `aws service-quotas request-service-quota-increase"
            f" --service-code {service} --quota-code {quota} --region {region.partition(':')[2]}"
            " --desired-value N`",
            quota=f"{quota} ({name})",
        )
    if code in NO_CAPACITY:
        return no_capacity(said)
    if code in _BAD_CREDENTIALS:
        return CloudAccessDenied(
            f"{said}; the credentials are wrong or expired, the region is not enabled for the"
            f" account, or the clock of this machine is wrong: correct it ({message})",
            of_credentials=True,
        )
    if code in _NOT_ALLOWED:
        return CloudAccessDenied(
            f"{said}; allow this action to the credentials, or leave {answer.where} out of the"
            f" setting regions of aws ({message})"
        )
    is_invalid = code.startswith("Invalid") or code in ("MissingParameter", "ValidationError")
    return otherwise(replace(answer, message=message), said, is_invalid=is_invalid)
