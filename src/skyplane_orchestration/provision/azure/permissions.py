"""Which actions requests and fleets need, and which of them the credentials have.

Azure tells the roles of the caller at a scope, those of the scopes above it included. It does not
tell deny assignments, nor whether the condition of a role assignment holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from skyplane_orchestration.errors import SkyplaneError

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi
    from skyplane_orchestration.provision.azure.options import AzureOptions

_VERBS: Final = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}
_RESOURCES: Final = "Microsoft.Resources"
#: Of `doctor` alone; fleets do without.
ONLY_DOCTOR: Final = frozenset(
    {"Microsoft.Authorization/permissions/read", "Microsoft.Network/locations/usages/read"}
)
_ASSIGN_IDENTITY: Final = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
_JOIN_SUBNET: Final = "Microsoft.Network/virtualNetworks/subnets/join/action"
_ADDRESS: Final = "Microsoft.Network/publicIPAddresses"
_VERSION: Final = "2022-04-01"

#: Of every fleet, on the subscription. A test compares them with the role of the documentation.
_ALWAYS: Final = frozenset(
    {
        "Microsoft.Compute/disks/delete",
        "Microsoft.Compute/disks/read",
        "Microsoft.Compute/disks/write",
        "Microsoft.Compute/locations/operations/read",
        "Microsoft.Compute/locations/usages/read",
        "Microsoft.Compute/skus/read",
        "Microsoft.Compute/virtualMachines/delete",
        "Microsoft.Compute/virtualMachines/read",
        "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",
        "Microsoft.Compute/virtualMachines/write",
        "Microsoft.Network/locations/operations/read",
        "Microsoft.Network/networkInterfaces/delete",
        "Microsoft.Network/networkInterfaces/join/action",
        "Microsoft.Network/networkInterfaces/read",
        "Microsoft.Network/networkInterfaces/write",
        "Microsoft.Network/networkSecurityGroups/delete",
        "Microsoft.Network/networkSecurityGroups/join/action",
        "Microsoft.Network/networkSecurityGroups/read",
        "Microsoft.Network/networkSecurityGroups/write",
        f"{_ADDRESS}/delete",
        f"{_ADDRESS}/read",
        "Microsoft.Network/virtualNetworks/delete",
        "Microsoft.Network/virtualNetworks/read",
        "Microsoft.Network/virtualNetworks/write",
        "Microsoft.Resources/subscriptions/providers/read",
        "Microsoft.Resources/subscriptions/resourceGroups/delete",
        "Microsoft.Resources/subscriptions/resourceGroups/read",
        "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
        "Microsoft.Resources/subscriptions/resourceGroups/write",
        "Microsoft.Resources/tags/read",
        "Microsoft.Resources/tags/write",
    }
)


@dataclass(frozen=True, slots=True)
class Role:
    """What a role of the caller allows; patterns with `*`, whatever their case.

    Args:
        actions: allowed ones.
        not_actions: those that it leaves out again; another role may still allow them.
    """

    actions: tuple[str, ...]
    not_actions: tuple[str, ...]

    def allows(self, action: str) -> bool:
        return _matches(action, self.actions) and not _matches(action, self.not_actions)


def needed(options: AzureOptions) -> dict[str, frozenset[str]]:
    """Scope (a resource id) -> the actions that fleets with these options need there."""
    subscription = f"/subscriptions/{options.subscription_id}"
    found: dict[str, set[str]] = {subscription: set(_ALWAYS)}
    if options.public_address:
        found[subscription] |= {f"{_ADDRESS}/join/action", f"{_ADDRESS}/write"}
    if not options.regions or set(options.regions) - set(options.subnets):
        found[subscription].add(_JOIN_SUBNET)
    for subnet in options.subnets.values():
        found.setdefault(subnet, set()).add(_JOIN_SUBNET)
    if options.managed_identity:
        found.setdefault(options.managed_identity, set()).add(_ASSIGN_IDENTITY)
    if options.disk_encryption_set:
        action = "Microsoft.Compute/diskEncryptionSets/read"
        found.setdefault(options.disk_encryption_set, set()).add(action)
    for image in options.images.values():
        if image.startswith("/"):
            kind = "galleries/images/versions" if "/galleries/" in image.lower() else "images"
            found.setdefault(image, set()).add(f"Microsoft.Compute/{kind}/read")
    return {scope: frozenset(actions) for scope, actions in found.items()}


def missing(
    api: AzureApi, options: AzureOptions
) -> tuple[tuple[str, ...], dict[str, SkyplaneError]]:
    """The needed actions that no role of the caller allows, each with its scope.

    Also scope -> why its roles cannot be read.
    """
    found: list[str] = []
    unknown: dict[str, SkyplaneError] = {}
    for scope, actions in needed(options).items():
        try:
            roles = held_roles(api, scope)
        except SkyplaneError as error:
            unknown[scope] = error
            continue
        lacking = sorted(one for one in actions if not any(role.allows(one) for role in roles))
        found += [f"{action} on {scope}" for action in lacking]
    return tuple(found), unknown


def held_roles(api: AzureApi, scope: str) -> Sequence[Role]:
    """What the roles of the caller allow at a scope. One call per page."""
    url = f"{scope}/providers/Microsoft.Authorization/permissions?api-version={_VERSION}"
    roles: list[Role] = []
    while url:
        page = api.read("reading which actions the credentials have", scope, url)
        roles += [
            Role(tuple(one.get("actions") or ()), tuple(one.get("notActions") or ()))
            for one in page.get("value") or ()
        ]
        url = page.get("nextLink") or ""
    return roles


def _matches(action: str, patterns: Iterable[str]) -> bool:
    return any(
        re.fullmatch(re.escape(one).replace(r"\*", ".*"), action, re.IGNORECASE) for one in patterns
    )


def action_of(method: str, url: str) -> str:
    """The action of a request to the Resource Manager."""
    parts = urlsplit(url).path.strip("/").split("/")
    lower = [part.lower() for part in parts]
    verb = _VERBS.get(method, "")
    if not verb:
        verb = f"{parts.pop()}/action"
        lower.pop()
    if "providers" not in lower:
        # subscriptions/S/resourceGroups[/G[/resources]], subscriptions/S/operationresults/O
        return "/".join([_RESOURCES, "subscriptions", *parts[2::2], verb])
    last = len(lower) - 1 - lower[::-1].index("providers")
    after = parts[last + 1 :]
    if len(after) == 1:
        return f"{_RESOURCES}/subscriptions/providers/{verb}"
    kinds = [after[0], *after[1::2]]
    return "/".join([*kinds, verb])
