"""What refusals of Azure mean: by code and status, never by text.

Azure's own text is only shown.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from skyplane_orchestration.errors import (
    CloudAccessDenied,
    ConfigurationInvalid,
    QuotaExceeded,
    SkyplaneError,
)
from skyplane_orchestration.provision.fleet.error_rules import ErrorResponse, no_capacity, otherwise

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
NO_GROUP: Final = "ResourceGroupNotFound"
NOT_FOUND: Final = frozenset({NO_GROUP, "NotFound", "ResourceNotFound"})
GROUP_ENDS: Final = frozenset({"ResourceGroupBeingDeleted", "ResourceGroupDeletionInProgress"})
#: A condition of the request does not hold: somebody else has changed or made the resource.
CHANGED: Final = frozenset({"PreconditionFailed"})


_VERBS: Final = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}


def type_of(path: str) -> str:
    """The type of what a path names, `Microsoft.Compute/virtualMachines`."""
    parts = urlsplit(path).path.strip("/").split("/")
    lower = [part.lower() for part in parts]
    if "providers" not in lower:
        # subscriptions/S/resourceGroups[/G[/resources]], subscriptions/S/operationresults/O
        return "/".join(["Microsoft.Resources/subscriptions", *parts[2::2]])
    after = parts[len(lower) - lower[::-1].index("providers") :]
    if len(after) == 1:
        return "Microsoft.Resources/subscriptions/providers"
    return "/".join([after[0], *after[1::2]])


def action_of(method: str, url: str) -> str:
    """The action of a request, as roles name it: `Microsoft.Compute/virtualMachines/write`."""
    if method in _VERBS:
        return f"{type_of(url)}/{_VERBS[method]}"
    path, _, verb = urlsplit(url).path.rpartition("/")
    return f"{type_of(path)}/{verb}/action"


def response_of(action: str, code: str, status: int, message: str, where: str) -> ErrorResponse:
    """A refusal of Azure.

    Args:
        action: see `action_of`.
        where: region tag, or what else was asked.
    """
    is_known = code in NO_CAPACITY | VCPU_QUOTA or code in _QUOTAS
    is_transient = not is_known and (code in _TRANSIENT or status == 429 or status >= 500)
    return ErrorResponse(action, code, status, message, where, is_transient)


def translate(answer: ErrorResponse, what: str) -> SkyplaneError:
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
        return no_capacity(said)
    if code == "MissingSubscriptionRegistration":
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
    # No permission helps against a policy of the organisation.
    is_policy = code == "RequestDisallowedByPolicy"
    if answer.status == 403 and not is_policy:
        return CloudAccessDenied(f"{said}; allow this action to the credentials ({answer.message})")
    if code in VCPU_QUOTA and action == "Microsoft.Compute/virtualMachines/write":
        # Only the text names the quota.
        return QuotaExceeded(f"{said} in {answer.where}: {answer.message}", quota=answer.message)
    return otherwise(answer, said, is_invalid=is_policy or answer.status == 400)
