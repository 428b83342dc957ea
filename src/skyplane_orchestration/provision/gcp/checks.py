"""Whether credentials, permissions and regions suffice; makes nothing.

Resource Manager tells which of the permissions the credentials have, so nothing has to be tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from skyplane_orchestration.errors import CloudAccessDenied, InstanceTypeNotOffered, SkyplaneError
from skyplane_orchestration.provision.fleet.account_check import (
    credentials_finding,
    unknown_regions,
)
from skyplane_orchestration.provision.gcp.client import GcpApi
from skyplane_orchestration.provision.gcp.describe import MachineTypes, usable_regions
from skyplane_orchestration.provision.gcp.error_mapping import PERMISSIONS
from skyplane_orchestration.provision.gcp.options import GcpOptions
from skyplane_orchestration.provision.provisioner import Finding

_PERMISSIONS: Final = "gcp permissions"
_ACCOUNT: Final = "gcp service account"
_REGIONS: Final = "gcp regions"
_ZONES: Final = "gcp zones"
#: The type that plans use by default.
_ANY_TYPE: Final = "n2-standard-4"
#: Those that the project of the network has to grant.
NETWORK_PERMISSIONS: Final = frozenset(
    {
        "compute.firewalls.create",
        "compute.firewalls.delete",
        "compute.firewalls.get",
        "compute.firewalls.list",
        "compute.firewalls.update",
        "compute.globalOperations.get",
        "compute.networks.updatePolicy",
        "compute.subnetworks.use",
        "compute.subnetworks.useExternalIp",
    }
)
#: Of `instances.insert` for instances with an external address.
EXTERNAL_ADDRESS: Final = "compute.subnetworks.useExternalIp"
#: Of `instances.insert` for instances with a service account; the other is granted on that account.
SERVICE_ACCOUNT: Final = "compute.instances.setServiceAccount"
ACT_AS: Final = "iam.serviceAccounts.actAs"


def findings(api: GcpApi, types: MachineTypes) -> tuple[Finding, ...]:
    """Credentials first; without them nothing else is tried. No other failure hides one."""
    options = api.options
    valid = f"they are valid for project {options.project}"
    credentials = credentials_finding("gcp", valid, None)
    missing: list[str] = []
    failed: list[Finding] = []
    wanted = needed(
        with_address=options.public_address, with_service_account=bool(options.identities)
    )
    asked_of = {options.project: wanted}
    if options.firewall_project != options.project:  # Another one may have the network.
        of_network = wanted & NETWORK_PERMISSIONS
        asked_of = {options.firewall_project: of_network, options.project: wanted - of_network}
    for project, asked in asked_of.items():
        try:
            granted = api.held_permissions(asked, project=project)
        except SkyplaneError as error:
            credentials = credentials_finding("gcp", valid, error)
            if not credentials.is_ok:
                return (credentials,)
            failed.append(Finding(_PERMISSIONS, False, str(error)))
        else:
            missing += [f"{permission} in project {project}" for permission in asked - granted]
    return (
        credentials,
        *failed,
        *_permissions(sorted(missing), is_known=not failed),
        *(_act_as(api, account) for account in options.identities),
        _regions(api),
        *_zones(options, types),
    )


def needed(*, with_address: bool, with_service_account: bool) -> frozenset[str]:
    """The permissions that a project has to grant."""
    found = {permission for group in PERMISSIONS.values() for permission in group}
    if with_address:
        found.add(EXTERNAL_ADDRESS)
    if with_service_account:
        found.add(SERVICE_ACCOUNT)
    return frozenset(found)


def _permissions(missing: list[str], *, is_known: bool) -> list[Finding]:
    if missing:
        return [Finding(_PERMISSIONS, False, f"these are missing: {', '.join(missing)}")]
    if not is_known:
        return []
    return [Finding(_PERMISSIONS, True, "the projects grant all that fleets need")]


def _act_as(api: GcpApi, account: str) -> Finding:
    """Of a service account of instances. Its API may be off, and fleets do without it."""
    try:
        granted = api.held_permissions({ACT_AS}, account=account)
    except SkyplaneError as error:
        text = f"not known: {ACT_AS} on {account}; {error}"
        return Finding(_ACCOUNT, True, text, is_warning=True)
    if ACT_AS in granted:
        return Finding(_ACCOUNT, True, f"instances can be given {account}")
    return Finding(_ACCOUNT, False, f"{ACT_AS} on {account} is missing")


def _regions(api: GcpApi) -> Finding:
    try:
        usable = usable_regions(api)
    except SkyplaneError as error:
        return Finding(_REGIONS, False, str(error))
    options = api.options
    named = {*(options.regions or ()), *options.zones, *options.subnetworks}
    found = Finding(_REGIONS, True, f"the project has {len(usable)} regions")
    return next(iter(unknown_regions("gcp", named, usable)), found)


def _zones(options: GcpOptions, types: MachineTypes) -> Iterator[Finding]:
    """Of the options, where they lack the usual type: a plan has another type or region then."""
    for region in options.zones:
        try:
            types.zones(region, _ANY_TYPE)
        except InstanceTypeNotOffered as error:
            yield Finding(_ZONES, True, str(error), is_warning=True)
        except CloudAccessDenied:
            return  # The check of the permissions tells of it.
        except SkyplaneError as error:
            yield Finding(_ZONES, False, str(error))
            return
