"""Whether credentials, permissions and regions suffice; makes nothing.

Resource Manager tells which of the permissions the credentials have, so nothing has to be tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import (
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
)
from skyplane_orchestration.provision.base import Finding
from skyplane_orchestration.provision.gcp.describe import usable_regions
from skyplane_orchestration.provision.gcp.verbs import ACT_AS, NETWORK_PERMISSIONS, needed

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.client import GcpApi
    from skyplane_orchestration.provision.gcp.options import GcpOptions

_CREDENTIALS: Final = "gcp credentials"
_PERMISSIONS: Final = "gcp permissions"
_ACCOUNT: Final = "gcp service account"
_REGIONS: Final = "gcp regions"


def findings(api: GcpApi, options: GcpOptions) -> tuple[Finding, ...]:
    """Credentials first; without them nothing else is tried."""
    try:
        missing = _missing(api, options)
    except (CloudAccessDenied, ConfigurationInvalid) as error:
        return (Finding(_CREDENTIALS, False, str(error)),)
    except CloudUnavailable as error:
        return (Finding(_PERMISSIONS, False, str(error)),)
    return (
        Finding(_CREDENTIALS, True, f"they are valid for project {options.project}"),
        _permissions(missing, options),
        *_act_as(api, options),
        _regions(api, options),
    )


def _missing(api: GcpApi, options: GcpOptions) -> list[str]:
    """The permissions that the project does not grant, or that of a shared network."""
    wanted = needed(
        with_address=options.public_address, with_service_account=bool(options.service_account)
    )
    of_network = wanted & NETWORK_PERMISSIONS
    missing: set[str] = set()
    for project, asked in (
        (options.firewall_project, of_network),
        (options.project, wanted - of_network),
    ):
        held = api.held_permissions(project, asked)
        missing |= {f"{permission} in project {project}" for permission in asked - held}
    return sorted(missing)


def _permissions(missing: list[str], options: GcpOptions) -> Finding:
    if missing:
        return Finding(_PERMISSIONS, False, f"these are missing: {', '.join(missing)}")
    return Finding(_PERMISSIONS, True, "the projects grant all that fleets need")


def _act_as(api: GcpApi, options: GcpOptions) -> list[Finding]:
    """Of the service account of sources and sinks. Its API may be off, and fleets do without it."""
    account = options.service_account
    if not account:
        return []
    try:
        held = api.held_on_account(account, {ACT_AS})
    except (CloudAccessDenied, CloudUnavailable, ConfigurationInvalid) as error:
        text = f"not known: {ACT_AS} on {account}; {error}"
        return [Finding(_ACCOUNT, True, text, is_warning=True)]
    if ACT_AS in held:
        return [Finding(_ACCOUNT, True, f"instances can be given {account}")]
    return [Finding(_ACCOUNT, False, f"{ACT_AS} on {account} is missing")]


def _regions(api: GcpApi, options: GcpOptions) -> Finding:
    try:
        usable = usable_regions(api)
    except (CloudAccessDenied, CloudUnavailable, ConfigurationInvalid) as error:
        return Finding(_REGIONS, False, str(error))
    named = {*(options.regions or ()), *options.zones, *options.subnetworks}
    if unknown := sorted(named - set(usable)):
        return Finding(_REGIONS, False, f"the project does not have {', '.join(unknown)}")
    return Finding(_REGIONS, True, f"the project has {len(usable)} regions")
