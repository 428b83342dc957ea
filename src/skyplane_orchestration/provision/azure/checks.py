"""Whether credentials, permissions and networks suffice; makes nothing.

Azure has no dry runs. It tells which actions the roles of the caller allow, and these are compared
with those that fleets need. Then the reading calls are made, which also find what roles do not
tell, such as deny assignments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import (
    CloudAccessDenied,
    ConfigurationInvalid,
    InstanceTypeNotOffered,
    SkyplaneError,
)
from skyplane_orchestration.provision.azure.describe import PowerStates
from skyplane_orchestration.provision.azure.options import region_tag
from skyplane_orchestration.provision.azure.permissions import missing
from skyplane_orchestration.provision.azure.types import region_quotas
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import Finding

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi
    from skyplane_orchestration.provision.azure.options import AzureOptions
    from skyplane_orchestration.provision.azure.types import Sizes

_PROVIDERS: Final = ("Microsoft.Compute", "Microsoft.Network")
_CREDENTIALS: Final = "azure credentials"
_NAME: Final = "azure permissions"
_MACHINES: Final = "virtualMachines"
#: The type that plans use by default.
_ANY_TYPE: Final = "Standard_D4s_v5"


class Checks:
    """The checks of `Machines.check`."""

    def __init__(self, api: AzureApi, options: AzureOptions, sizes: Sizes) -> None:
        self._api = api
        self._options = options
        self._sizes = sizes

    def findings(self) -> tuple[Finding, ...]:
        """Credentials first; without them nothing else is tried. No other failure hides one."""
        subscription = self._options.subscription_id
        credentials = Finding(_CREDENTIALS, True, f"they are valid for subscription {subscription}")
        regions: tuple[str, ...] | None = None
        try:
            regions = usable_regions(self._api)
        except ConfigurationInvalid as error:  # Of a connection.
            return (Finding(_CREDENTIALS, False, str(error)),)
        except SkyplaneError as error:
            # The check of the providers tells of it too.
            if isinstance(error, CloudAccessDenied):
                if error.of_credentials:
                    return (Finding(_CREDENTIALS, False, str(error)),)
            else:
                credentials = Finding(
                    _CREDENTIALS, True, "not known, since Azure does not tell", is_warning=True
                )
        named = self._options.regions or regions or ()
        home = next((one for one in named if regions is None or one in regions), "")
        return (
            credentials,
            *self._providers(),
            *self._permissions(home),
            *(() if regions is None else self._unknown_regions(regions)),
        )

    def _providers(self) -> list[Finding]:
        found = []
        for name in _PROVIDERS:
            try:
                state = provider(self._api, name).get("registrationState")
            except CloudAccessDenied as error:
                found.append(Finding(_NAME, False, str(error)))
                continue
            except SkyplaneError as error:
                found.append(Finding(f"azure {name}", False, str(error)))
                continue
            if state != "Registered":
                found.append(
                    Finding(
                        f"azure {name}",
                        False,
                        f"the subscription has not registered it; use `az provider register"
                        f" --namespace {name}`",
                    )
                )
        return found

    def _permissions(self, region: str) -> list[Finding]:
        """Of roles, and what the reading calls find."""
        lacking, unknown = missing(self._api, self._options)
        not_known = [
            Finding(
                _NAME,
                isinstance(why, CloudAccessDenied),
                f"not known for {scope}: {why}",
                is_warning=True,
            )
            for scope, why in unknown.items()
        ]
        read = self._reads(region)
        if lacking:
            text = f"these are missing: {', '.join(lacking)}"
            others = [one for one in read if one.name != _NAME]  # The roles have told those.
            return [Finding(_NAME, False, text), *others, *not_known]
        if not_known or not all(one.is_ok for one in read):
            return [*read, *not_known]
        return [
            *read,
            Finding(
                _NAME,
                True,
                "roles allow all that fleets need; not checked: deny assignments, and conditions of"
                " role assignments",
            ),
        ]

    def _reads(self, region: str) -> list[Finding]:
        # At once, since each waits long where Azure does not answer.
        groups = in_parallel([partial(_outcome, region, one) for one in self._attempts(region)])
        return list(dict.fromkeys(finding for group in groups for finding in group))

    def _attempts(self, region: str) -> list[Callable[[], object]]:
        api = self._api
        resources, network, compute = api.resources, api.network, api.compute
        what, where = "checking the permissions", region or "the subscription"
        of_region: list[Callable[[], object]] = [
            lambda: self._sizes.of(region, _ANY_TYPE),
            lambda: region_quotas(api, region, with_spot=self._options.spot_relays),
        ]
        return [
            lambda: list(api.listed(what, where, resources.resource_groups.list)),
            PowerStates(api).of_all,
            lambda: list(api.listed(what, where, network.network_security_groups.list_all)),
            lambda: list(api.listed(what, where, network.network_interfaces.list_all)),
            lambda: list(api.listed(what, where, network.public_ip_addresses.list_all)),
            lambda: list(api.listed(what, where, compute.disks.list)),
            *(of_region if region else ()),
        ]

    def _unknown_regions(self, usable: tuple[str, ...]) -> list[Finding]:
        """Of the regions that the options name."""
        named = [*(self._options.regions or ()), *self._options.subnets, *self._options.zones]
        return [
            Finding(
                f"azure {region}",
                False,
                "the subscription has no such region; correct regions, subnets or zones of azure",
            )
            for region in dict.fromkeys(named)
            if region not in usable
        ]


def _outcome(region: str, attempt: Callable[[], object]) -> list[Finding]:
    """What an attempt has found; its failure hides no other one."""
    try:
        attempt()
    except CloudAccessDenied as error:
        return [Finding(_NAME, False, str(error))]
    except InstanceTypeNotOffered as error:
        # A plan has another type or region then.
        return [Finding(f"azure {region}", True, str(error), is_warning=True)]
    except SkyplaneError as error:
        return [Finding(f"azure {region}".rstrip(), False, str(error))]
    return []


def provider(api: AzureApi, name: str) -> dict[str, object]:
    """What the subscription knows of a resource provider."""
    providers = api.resources.providers
    return api.get(
        f"looking for the provider {name}", "the subscription", lambda: providers.get(name)
    )


def usable_regions(api: AzureApi) -> tuple[str, ...]:
    """Tags of the regions that have virtual machines for the subscription, sorted."""
    kinds = provider(api, _PROVIDERS[0]).get("resourceTypes")
    locations = {
        location
        for kind in (kinds if isinstance(kinds, list) else [])
        if kind.get("resourceType") == _MACHINES
        for location in kind.get("locations") or ()
    }
    return tuple(sorted(region_tag(location) for location in locations))
