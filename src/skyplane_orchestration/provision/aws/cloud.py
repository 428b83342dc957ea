"""AWS as a `Machines`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import CloudUnavailable
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.aws.checks import Checks
from skyplane_orchestration.provision.aws.client import AwsApi
from skyplane_orchestration.provision.aws.describe import (
    DENIED,
    DeniedRegions,
    Ec2InstanceTypes,
    delete,
    enabled_regions,
    leftovers,
    our_instances,
    quota_uses,
    region_quotas,
)
from skyplane_orchestration.provision.aws.firewall import Networks, SecurityGroups
from skyplane_orchestration.provision.aws.launch import AwsLauncher
from skyplane_orchestration.provision.aws.options import (
    ALPHABET,
    AwsOptions,
    filter_of,
    region_name,
)
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    FleetTags,
    Ingress,
    Instance,
    LaunchRequest,
    Machines,
    PublicHosts,
    tail,
)
from skyplane_orchestration.provision.fleet.tags import KEY
from skyplane_orchestration.provision.parallel import each_region, in_regions
from skyplane_orchestration.provision.provisioner import Finding
from skyplane_orchestration.security.store_credentials import CredentialSources

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

T = TypeVar("T")

_NO_INSTANCE: Final = "InvalidInstanceID.NotFound"
#: Most instances of one call.
_PAGE: Final = 1000
#: AWS shows an instance within a fraction of this time; clocks may differ by as much.
_FRESH_S: Final = 600.0


class AwsCloud(Machines):
    """See `Machines`. Threads may share it.

    Args:
        options: credentials, images, networks.
        sources: resolves `credential_ref`; None for those without an orchestrator's hook.
        clock: of waits.
    """

    name = "aws"

    def __init__(
        self,
        options: AwsOptions | None = None,
        sources: CredentialSources | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._options = options or AwsOptions()
        self._api = AwsApi(self._options, sources or CredentialSources(), clock)
        self._networks = Networks(self._api)
        self._firewalls = SecurityGroups(self._api, self._networks)
        self._types = Ec2InstanceTypes(self._api)
        self._denied = DeniedRegions(self._options)
        self._launcher = AwsLauncher(self._api, self._networks, self._firewalls, self._types)

    def store_identity(self, region: str) -> str:
        return "s3" if self._options.instance_profile else ""

    @property
    def public_hosts(self) -> PublicHosts | None:
        variables = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_EC2")
        elsewhere = self._options.endpoint_url or any(map(os.environ.get, variables))
        if elsewhere or not self._options.public_address:
            return None
        name = region_name(next(iter(self._options.regions or ()), "aws:us-east-1"))
        # EC2's endpoints speak HTTP and HTTPS ("Amazon EC2 service endpoints", 2026-11-26).
        host = f"ec2.{name}.amazonaws.com" + (".cn" if name.startswith("cn-") else "")
        return PublicHosts(host, host)

    def regions(self) -> tuple[str, ...]:
        if self._options.regions:
            return self._options.regions
        found = enabled_regions(self._api)
        self._denied.all_regions = frozenset(found)
        return found

    def vcpus(self, region: str, instance_type: str) -> int:
        return self._types.of(region, instance_type).vcpus

    def describe(self, fleet_key: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        return self._search(our_instances, filter_of("fleet", fleet_key), regions)

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        filters = filter_of("deployment", deployment)
        rest = self._search(leftovers, filters, regions)
        return self._search(our_instances, filters, regions), rest

    def create_firewalls(self, tags: FleetTags, regions: Sequence[str]) -> None:
        self._denied.used |= set(regions)
        in_regions(regions, lambda region: self._firewalls.ensure(tags, region))

    def admit(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._firewalls.admit(tags, region, ingress)

    def launch(self, request: LaunchRequest) -> Instance:
        return self._launcher.launch(request)

    def pin_key(self, instance: Instance, key_id: str) -> None:
        what = f"writing a tag of {instance.instance}"
        try:
            self._api.call(
                what,
                instance.region,
                "create_tags",
                missing=(_NO_INSTANCE, "InvalidID"),
                Resources=[instance.cloud_id],
                Tags=[{"Key": ALPHABET.name(KEY), "Value": key_id}],
            )
        except CloudRefusal as refusal:
            raise CloudUnavailable(
                f"{what}: AWS does not know {instance.cloud_id} any more; try again"
            ) from refusal

    def set_ingress(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._firewalls.set_ingress(tags, region, ingress)

    def terminate(self, instances: Sequence[Instance]) -> None:
        each_region(instances, self._terminate)

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        def in_use(region: str, its: Sequence[FleetResource]) -> list[FleetResource]:
            return [one for one in its if not delete(self._api, one)]

        return tuple(one for left in each_region(resources, in_use) for one in left)

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        return self._search(leftovers, filter_of("fleet", fleet_key), regions)

    def console_url(self, fleet_key: str, region: str) -> str:
        """The list of the region's instances, filtered by the fleet's tag."""
        name = region.partition(":")[2]
        return (
            f"https://{name}.console.aws.amazon.com/ec2/home?region={name}"
            f"#Instances:tag:{ALPHABET.name('fleet')}={fleet_key}"
        )

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        """Types on the Nitro system tell what is there now.

        Others tell only what AWS has copied some minutes after the boot.
        """
        for is_latest in (True, False):
            try:
                answer = self._api.call(
                    f"reading the console of {instance.instance}",
                    instance.region,
                    "get_console_output",
                    expected={"UnsupportedOperation", _NO_INSTANCE},
                    InstanceId=instance.cloud_id,
                    Latest=is_latest,
                )
            except CloudRefusal as refusal:
                if refusal.code == _NO_INSTANCE:
                    return ""
                continue
            return tail(answer.get("Output", "").encode(), max_bytes)
        return ""

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        with_spot = self._options.spot_relays
        found = self._denied.passed_over(
            regions, lambda region: region_quotas(self._api, region, with_spot=with_spot)
        )
        closed = [RegionQuota(one, DENIED, instances=0) for one in regions if one not in found]
        return (*closed, *(quota for rows in found.values() for quota in rows))

    def quota_uses(self, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
        return tuple(chain.from_iterable(in_regions(regions, partial(quota_uses, self._api))))

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return Checks(self._api, self._networks, self._types, deployment).findings()

    def _search(
        self,
        look: Callable[[AwsApi, str, Sequence[FilterTypeDef]], Iterable[T]],
        filters: Sequence[FilterTypeDef],
        regions: Sequence[str],
    ) -> tuple[T, ...]:
        return self._denied.search(regions, lambda region: tuple(look(self._api, region, filters)))

    def _terminate(self, region: str, instances: Sequence[Instance]) -> None:
        for first in range(0, len(instances), _PAGE):
            page = instances[first : first + _PAGE]
            try:
                self._end(region, page, missing=())
            except CloudRefusal:
                # AWS ends none of them for one that it does not know.
                for instance in page:
                    is_fresh = abs(self._api.clock.wall() - instance.launched_unix_s) < _FRESH_S
                    with suppress(CloudRefusal):
                        self._end(region, [instance], missing=(_NO_INSTANCE,) if is_fresh else ())

    def _end(self, region: str, instances: Sequence[Instance], missing: Sequence[str]) -> None:
        """Raises CloudRefusal: AWS does not know one, also after a wait if it may be new."""
        ids = [instance.cloud_id for instance in instances]
        self._api.call(
            f"ending {len(ids)} instances in {region}",
            region,
            "terminate_instances",
            missing=missing,
            expected=() if missing else (_NO_INSTANCE,),
            InstanceIds=ids,
        )
