"""What refusals of Azure mean: by code and status, never by text.

Azure's own text is only shown. A refusal with one of the codes that a caller expects is a
`Refusal`, which never leaves this package.
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

#: No such instance in this zone now.
NO_CAPACITY: Final = frozenset(
    {
        "AllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "SkuNotAvailable",
        "ZonalAllocationFailed",
    }
)
#: The vCPUs of a quota are used up. The first is also the code of other refusals, so quotas are
#: looked up.
VCPU_QUOTA: Final = frozenset({"OperationNotAllowed", "QuotaExceeded"})
_LAUNCH: Final = "Microsoft.Compute/virtualMachines/write"
#: Code -> name of another quota.
_QUOTAS: Final = {
    "PublicIPCountLimitReached": "Public IP Addresses",
    "StandardSkuPublicIPCountLimitReached": "Standard SKU Public IP Addresses",
    "NetworkInterfaceCountLimitReached": "Network Interfaces",
    "NetworkSecurityGroupCountLimitReached": "Network Security Groups",
    "VirtualNetworkCountLimitReached": "Virtual Networks",
    "ResourceGroupQuotaExceeded": "Resource Groups",
}
#: The same request succeeds once something else is done.
_TRANSIENT: Final = frozenset(
    {
        "AnotherOperationInProgress",
        "InternalServerError",
        "OperationPreempted",
        "RetryableError",
        "ServerTimeout",
        "SubscriptionRequestsThrottled",
        "TooManyRequests",
    }
)
_BAD_CREDENTIALS: Final = frozenset(
    {
        "AuthenticationFailed",
        "ExpiredAuthenticationToken",
        "InvalidAuthenticationToken",
        "InvalidAuthenticationTokenTenant",
        "SubscriptionNotFound",
    }
)
_NO_PROVIDER: Final = "MissingSubscriptionRegistration"
NO_GROUP: Final = "ResourceGroupNotFound"
NOT_FOUND: Final = frozenset({NO_GROUP, "NotFound", "ResourceNotFound"})
GROUP_ENDS: Final = frozenset({"ResourceGroupBeingDeleted", "ResourceGroupDeletionInProgress"})
#: A condition of the request does not hold: somebody else has changed or made the resource.
CHANGED: Final = frozenset({"PreconditionFailed"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A refusal as Azure sent it.

    Args:
        action: as roles name it, `Microsoft.Compute/virtualMachines/write`.
        code, status, message: of Azure.
        where: region tag, or what else was asked.
    """

    action: str
    code: str
    status: int
    message: str
    where: str

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed in a moment."""
        if self.code in NO_CAPACITY | VCPU_QUOTA or self.code in _QUOTAS:
            return False
        return self.code in _TRANSIENT or self.status == 429 or self.status >= 500


class Refusal(Exception):
    """A refusal that the caller expects."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.action}: {answer.code}")
        self.answer = answer
        self.code = answer.code


def translate(answer: Answer, what: str) -> SkyplaneError:
    """The error for a refusal; `what` begins its message."""
    code, action = answer.code, answer.action
    said = f"{what}: Azure refuses {action} ({code})"
    if code in _QUOTAS:
        return QuotaExceeded(
            f"{said}; the quota {_QUOTAS[code]} of {answer.where} is used up: delete what is not"
            " needed, or ask for more in the portal under Quotas",
            quota=_QUOTAS[code],
        )
    if code in NO_CAPACITY:
        return CapacityUnavailable(
            f"{said}; try again later, or plan with another instance type or region"
        )
    if code == _NO_PROVIDER:
        return ConfigurationInvalid(
            f"{said}; register the resource provider with `az provider register --namespace"
            f" {action.partition('/')[0]}` ({answer.message})"
        )
    if code in _BAD_CREDENTIALS or answer.status == 401:
        return CloudAccessDenied(
            f"{said}; the credentials are wrong or expired, or have no access to the subscription:"
            f" renew or correct them, and check this machine's clock ({answer.message})",
            of_credentials=True,
        )
    if answer.status == 403:
        return CloudAccessDenied(f"{said}; allow this action to the credentials ({answer.message})")
    if answer.is_transient:
        return CloudUnavailable(f"{said} and all retries; try again later")
    if code in VCPU_QUOTA and action == _LAUNCH:
        return QuotaExceeded(
            f"{said} in {answer.where}: {answer.message}",
            # Only the text names it.
            quota=answer.message,
        )
    if answer.status == 400:
        return ConfigurationInvalid(f"{said}: {answer.message}")
    return CloudUnavailable(f"{said}: {answer.message}")
