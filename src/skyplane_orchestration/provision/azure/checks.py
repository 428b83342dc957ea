"""Whether credentials, permissions and networks suffice; makes nothing.

Azure has no dry runs. It tells which actions the roles of the caller allow at a scope, those of the
scopes above it included, and these are compared with those that fleets need. Then the reading calls
are made, which also find what roles do not tell: deny assignments, and conditions of roles.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from skyplane_orchestration.errors import CloudAccessDenied, InstanceTypeNotOffered, SkyplaneError
from skyplane_orchestration.provision.azure.client import AzureApi
from skyplane_orchestration.provision.azure.describe import VmSizes, power_states, region_quotas
from skyplane_orchestration.provision.azure.options import AzureOptions, Kind, Resource, region_tag
from skyplane_orchestration.provision.fleet.account_check import (
    credentials_finding,
    outcomes,
    unknown_regions,
)
from skyplane_orchestration.provision.provisioner import Finding

_NAME: Final = "azure permissions"
#: The type that plans use by default.
_ANY_TYPE: Final = "Standard_D4s_v5"

_JOIN_SUBNET: Final = f"{Kind.NETWORK}/subnets/join/action"
#: Type -> what every fleet does with it, on the subscription. A test compares the actions with the
#: role of the documentation.
_ALWAYS: Final = {
    Kind.DISK: "delete read write",
    "Microsoft.Compute/locations/operations": "read",
    "Microsoft.Compute/locations/usages": "read",
    "Microsoft.Compute/skus": "read",
    Kind.MACHINE: "delete read retrieveBootDiagnosticsData/action write",
    "Microsoft.Network/locations/operations": "read",
    Kind.INTERFACE: "delete join/action read write",
    Kind.FIREWALL: "delete join/action read write",
    f"{Kind.FIREWALL}/securityRules": "delete read write",
    Kind.ADDRESS: "delete read",
    Kind.NETWORK: "delete read write",
    "Microsoft.Resources/subscriptions/providers": "read",
    "Microsoft.Resources/subscriptions/resourceGroups": "delete read resources/read write",
    "Microsoft.Resources/tags": "read write",
}


def findings(api: AzureApi, sizes: VmSizes) -> tuple[Finding, ...]:
    """Credentials first; without them nothing else is tried. No other failure hides one."""
    options = api.options
    valid = f"they are valid for subscription {options.subscription_id}"
    credentials = credentials_finding("azure", valid, None)
    regions: tuple[str, ...] | None = None
    try:
        regions = usable_regions(api)
    except SkyplaneError as error:
        # The check of the providers tells of it too.
        credentials = credentials_finding("azure", valid, error)
        if not credentials.is_ok:
            return (credentials,)
    named = options.regions or regions or ()
    of_settings = {*(options.regions or ()), *options.subnets, *options.zones}
    unknown = [] if regions is None else unknown_regions("azure", of_settings, regions)
    home = next((one for one in named if regions is None or one in regions), "")
    return (
        credentials,
        *(
            one
            for name in ("Microsoft.Compute", "Microsoft.Network")
            for one in outcomes("azure", name, [partial(_unregistered, api, name)])
        ),
        *_permissions(api, outcomes("azure", home, _attempts(api, sizes, home))),
        *unknown,
    )


def _unregistered(api: AzureApi, name: str) -> Finding | None:
    if _provider(api, name).get("registrationState") == "Registered":
        return None
    return Finding(
        f"azure {name}",
        False,
        f"the subscription has not registered it; use `az provider register --namespace {name}`",
    )


def _permissions(api: AzureApi, read: list[Finding]) -> list[Finding]:
    """Of roles, and what the reading calls have found."""
    missing: list[str] = []
    unknown: list[Finding] = []
    for scope, actions in needed(api.options).items():
        try:
            path = f"{scope}/providers/Microsoft.Authorization/permissions"
            roles = list(api.listed("reading which actions the credentials have", path))
        except SkyplaneError as error:
            text = f"not known for {scope}: {error}"
            is_ok = isinstance(error, CloudAccessDenied)
            unknown.append(Finding(_NAME, is_ok, text, is_warning=True))
            continue
        missing += [
            f"{action} on {scope}"
            for action in sorted(actions)
            if not any(_allows(role, action) for role in roles)
        ]
    if missing:
        others = [one for one in read if one.name != _NAME]  # The roles have told those.
        text = f"these are missing: {', '.join(missing)}"
        return [Finding(_NAME, False, text), *others, *unknown]
    if not unknown and all(one.is_ok for one in read):
        text = "roles allow all that fleets need; not checked: deny assignments, and conditions of"
        unknown.append(Finding(_NAME, True, f"{text} role assignments"))
    return [*read, *unknown]


def needed(options: AzureOptions) -> dict[str, frozenset[str]]:
    """Scope (a resource id) -> the actions that fleets with these options need there."""
    subscription = f"/subscriptions/{options.subscription_id}"
    found: dict[str, set[str]] = defaultdict(set)
    found[subscription] |= {
        f"{kind}/{verb}" for kind, verbs in _ALWAYS.items() for verb in verbs.split()
    }
    if options.public_address:
        found[subscription] |= {f"{Kind.ADDRESS}/join/action", f"{Kind.ADDRESS}/write"}
    if not options.regions or set(options.regions) - set(options.subnets):
        found[subscription].add(_JOIN_SUBNET)
    for subnet in options.subnets.values():
        found[subnet].add(_JOIN_SUBNET)
    for identity in options.identities:
        found[identity].add("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action")
    if options.disk_encryption_set:
        found[options.disk_encryption_set].add("Microsoft.Compute/diskEncryptionSets/read")
    for image in options.images.values():
        if image.startswith("/"):
            kind = "galleries/images/versions" if "/galleries/" in image.lower() else "images"
            found[image].add(f"Microsoft.Compute/{kind}/read")
    return {scope: frozenset(actions) for scope, actions in found.items()}


def _allows(role: Resource, action: str) -> bool:
    """By patterns with `*`, in any case. Another role may allow what this one leaves out."""

    def matches(patterns: Iterable[str] | None) -> bool:
        forms = (re.escape(one).replace(r"\*", ".*") for one in patterns or ())
        return any(re.fullmatch(one, action, re.IGNORECASE) for one in forms)

    return matches(role.get("actions")) and not matches(role.get("notActions"))


def _attempts(api: AzureApi, sizes: VmSizes, region: str) -> list[Callable[[], object]]:
    """The reading calls of fleets."""

    def usual_type() -> Finding | None:
        try:
            sizes.of(region, _ANY_TYPE)
        except InstanceTypeNotOffered as error:
            # A plan has another type or region then.
            return Finding(f"azure {region}", True, str(error), is_warning=True)
        return None

    kinds = (Kind.FIREWALL, Kind.INTERFACE, Kind.ADDRESS, Kind.DISK)
    paths = ["resourceGroups", *(f"providers/{kind}" for kind in kinds)]
    always: list[Callable[[], object]] = [
        partial(power_states, api),
        *(lambda path=path: list(api.listed("checking the permissions", path)) for path in paths),
    ]
    quotas = partial(region_quotas, api, region, with_spot=api.options.spot_relays)
    return [*always, usual_type, quotas] if region else always


def _provider(api: AzureApi, name: str) -> Resource:
    """What the subscription knows of a resource provider."""
    return api.call(f"looking for the provider {name}", "GET", f"providers/{name}")


def usable_regions(api: AzureApi) -> tuple[str, ...]:
    """Tags of the regions that have virtual machines for the subscription, sorted."""
    namespace, _, machines = Kind.MACHINE.partition("/")
    locations = {
        location
        for kind in _provider(api, namespace).get("resourceTypes") or ()
        if kind.get("resourceType") == machines
        for location in kind.get("locations") or ()
    }
    return tuple(sorted(region_tag(location) for location in locations))
