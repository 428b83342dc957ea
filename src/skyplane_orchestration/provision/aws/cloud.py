"""AWS as a `Machines`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.aws import tags as aws_tags
from skyplane_orchestration.provision.aws.checks import Checks
from skyplane_orchestration.provision.aws.console import console_tail, console_url
from skyplane_orchestration.provision.aws.denied_regions import DENIED, DeniedRegions
from skyplane_orchestration.provision.aws.describe import enabled_regions, ours
from skyplane_orchestration.provision.aws.launch import Launcher
from skyplane_orchestration.provision.aws.network import Firewalls
from skyplane_orchestration.provision.aws.options import AwsOptions, region_name
from skyplane_orchestration.provision.aws.pin import pin_key
from skyplane_orchestration.provision.aws.quotas import quota_uses, region_quotas
from skyplane_orchestration.provision.aws.remainders import delete, remainders
from skyplane_orchestration.provision.aws.subnets import Networks
from skyplane_orchestration.provision.aws.terminate import terminate
from skyplane_orchestration.provision.aws.types import Types
from skyplane_orchestration.provision.base import Finding
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    FleetTags,
    Ingress,
    Instance,
    LaunchRequest,
    PublicHosts,
)
from skyplane_orchestration.provision.regions import in_regions
from skyplane_orchestration.security.credentials import CredentialSources

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef


class AwsCloud:
    """See `Machines`. Threads may share it.

    Args:
        options: credentials, images, networks.
        sources: resolves `credential_ref`; None for those without an orchestrator's hook.
        clock: of waits.

    Raises MissingExtra: the SDK is not installed.
    """

    name = "aws"

    def __init__(
        self,
        options: AwsOptions | None = None,
        sources: CredentialSources | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        try:
            from skyplane_orchestration.provision.aws.client import AwsApi
        except ModuleNotFoundError as error:
            raise MissingExtra.of("the provisioner 'aws'", "aws") from error
        self._options = options or AwsOptions()
        self._api = AwsApi(self._options, sources or CredentialSources(), clock)
        self._networks = Networks(self._api, self._options)
        self._firewalls = Firewalls(self._api, self._networks, self._options.user_tags)
        self._types = Types(self._api, self._options)
        self._denied = DeniedRegions(self._options)
        self._launcher = Launcher(
            self._api,
            self._options,
            self._networks,
            self._firewalls,
            self._types,
        )

    @property
    def store_identity(self) -> str:
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
        return self._instances(aws_tags.of_fleet(fleet_key), regions)

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        filters = aws_tags.of_deployment(deployment)
        return self._instances(filters, regions), self._remainders(filters, regions)

    def prepare(self, tags: FleetTags, regions: Sequence[str], ingress: Sequence[Ingress]) -> None:
        self._denied.used |= set(regions)
        in_regions(regions, lambda region: self._firewalls.ensure(tags, region, ingress))

    def launch(self, request: LaunchRequest) -> Instance:
        return self._launcher.launch(request)

    def pin_key(self, instance: Instance, key_id: str) -> None:
        pin_key(self._api, instance, key_id)

    def allow(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._firewalls.allow(tags, region, ingress)

    def terminate(self, instances: Sequence[Instance]) -> None:
        by_region = defaultdict(list)
        for instance in instances:
            by_region[instance.region].append(instance)
        in_regions(by_region, lambda region: terminate(self._api, region, by_region[region]))

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        by_region = defaultdict(list)
        for resource in resources:
            by_region[resource.region].append(resource)

        def in_use(region: str) -> list[FleetResource]:
            return [one for one in by_region[region] if not delete(self._api, one)]

        return tuple(one for left in in_regions(by_region, in_use) for one in left)

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        return self._remainders(aws_tags.of_fleet(fleet_key), regions)

    def console_url(self, fleet_key: str, region: str) -> str:
        return console_url(fleet_key, region)

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        return console_tail(self._api, instance, max_bytes)

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        with_spot = self._options.spot_relays
        found = self._denied.passed_over(
            regions, lambda region: region_quotas(self._api, region, with_spot=with_spot)
        )
        closed = [RegionQuota(one, DENIED, instances=0) for one in regions if one not in found]
        return (*closed, *(quota for rows in found.values() for quota in rows))

    def quota_uses(self, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
        found = in_regions(regions, lambda region: quota_uses(self._api, region))
        return tuple(use for rows in found for use in rows)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        checks = Checks(self._api, self._options, self._networks, self._types, deployment)
        return checks.findings()

    def _instances(
        self, filters: Sequence[FilterTypeDef], regions: Sequence[str]
    ) -> tuple[Instance, ...]:
        is_public = self._options.public_address
        return self._denied.search(
            regions,
            lambda region: ours(self._api, region, filters, has_public_address=is_public),
        )

    def _remainders(
        self, filters: Sequence[FilterTypeDef], regions: Sequence[str]
    ) -> tuple[FleetResource, ...]:
        return self._denied.search(
            regions, lambda region: list(remainders(self._api, region, filters))
        )
