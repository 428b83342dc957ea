"""All errors of the library; those of gateways come from `skyplane_gateway.common.errors`.

`SkyplaneError` is the root. Catch a leaf to handle it, the root to report it. `is_permanent`
says whether a retry of the same call is useless; the operators then fail without retries. A name
that is imported as itself is exported again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from skyplane_gateway.common.errors import (
    AddressTaken as AddressTaken,
    AlreadyExists as AlreadyExists,
    Cancelled as Cancelled,
    ChecksumMismatch as ChecksumMismatch,
    ConfigurationInvalid as ConfigurationInvalid,
    CredentialsExpired as CredentialsExpired,
    CredentialsTooWide as CredentialsTooWide,
    EmptySource as EmptySource,
    GatewayDraining as GatewayDraining,
    GatewayError as GatewayError,
    GatewayLost as GatewayLost,
    GatewayUnreachable as GatewayUnreachable,
    InternalError as InternalError,
    InvalidKey as InvalidKey,
    JournalUnreadable as JournalUnreadable,
    ManifestUnreadable as ManifestUnreadable,
    MetadataNotCarried as MetadataNotCarried,
    MissingExtra as MissingExtra,
    NotAuthorised as NotAuthorised,
    NotFound as NotFound,
    NotRestored as NotRestored,
    ObjectsFailed as ObjectsFailed,
    ObjectTooLarge as ObjectTooLarge,
    Overloaded as Overloaded,
    PathEnded as PathEnded,
    PermissionDenied as PermissionDenied,
    PreconditionFailed as PreconditionFailed,
    ReadBackMismatch as ReadBackMismatch,
    SkyplaneError as SkyplaneError,
    StaleEpoch as StaleEpoch,
    Stopped as Stopped,
    StoreError as StoreError,
    StoreUnavailable as StoreUnavailable,
    Throttled as Throttled,
    Unauthenticated as Unauthenticated,
    UnknownTransfer as UnknownTransfer,
    from_dict as from_dict,
)


class InvalidLocation(ConfigurationInvalid):
    """A URL, region tag or endpoint is not valid."""


class UnknownRegion(InvalidLocation):
    """The grid does not have this region; the message offers similar names."""


class GridInvalid(ConfigurationInvalid):
    """A grid directory is not valid; the message names file and row."""


class PlanError(SkyplaneError, is_permanent=True):
    """No plan could be made."""


class PlanInfeasible(PlanError):
    """No plan meets the objective.

    Args:
        message: the request, and the constraints that bind.
        binding: names of the constraints that bind.
        most_gbps: the largest possible throughput.
        least_usd, least_usd_per_gb: the smallest possible price, for the job or per GB.
        least_s: the earliest possible deadline. A second request with such a value succeeds.
    """

    # Defaults for an error that was rebuilt from JSON.
    binding: tuple[str, ...] = ()
    most_gbps: float | None = None
    least_usd: float | None = None
    least_usd_per_gb: float | None = None
    least_s: float | None = None

    def __init__(
        self,
        message: str,
        *,
        binding: tuple[str, ...] = (),
        most_gbps: float | None = None,
        least_usd: float | None = None,
        least_usd_per_gb: float | None = None,
        least_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.binding = binding
        self.most_gbps = most_gbps
        self.least_usd = least_usd
        self.least_usd_per_gb = least_usd_per_gb
        self.least_s = least_s

    def to_dict(self) -> dict[str, object]:
        """With the fields of this error, for scripts; unknown values are left out."""
        names = ("most_gbps", "least_usd", "least_usd_per_gb", "least_s")
        known = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {**super().to_dict(), "binding": list(self.binding), **known}


class SolverFailed(PlanError, is_permanent=False):
    """HiGHS stopped without an answer (a limit or numerical trouble)."""


class ProvisionFailed(SkyplaneError):
    """The fleet did not come up; what had come up was taken down again."""


class LaunchRefused(ProvisionFailed):
    """A cloud has no room for an instance: by a quota, or for want of capacity.

    Args:
        quota: the quota's name, or the cloud's words that hold it; empty for capacity.
        series: begin of the names of the instance types that the quota limits; empty for all.

    Attributes:
        region: tag of the region that refused an instance; empty if it was another resource.
        instance_type: the type that was refused.
        launched: how many instances the fleet got in that region.
        ended: the `FleetInstance`s that were launched for the fleet, and have been ended.
    """

    region: str = ""
    instance_type: str = ""
    launched: int = 0
    ended: tuple[object, ...] = ()
    # A default for an error that was rebuilt from JSON.
    quota: str = ""
    series: str = ""

    def __init__(self, message: str, *, quota: str = "", series: str = "") -> None:
        super().__init__(message)
        self.quota = quota
        self.series = series

    def adding(self, reason: str) -> LaunchRefused:
        """The same error with a further reason in its message."""
        more = type(self)(f"{self.message}; {reason}", quota=self.quota, series=self.series)
        more.region, more.instance_type = self.region, self.instance_type
        more.launched, more.ended = self.launched, self.ended
        return more


class QuotaExceeded(LaunchRefused):
    """A cloud's quota does not allow the instances; the message names the quota and the region.

    A retry helps once other instances have ended.
    """


class CapacityUnavailable(LaunchRefused):
    """A cloud has no such instance in any zone of the region now."""


class InstanceTypeNotOffered(LaunchRefused, is_permanent=True):
    """A region does not offer the instance type of the plan to this account."""

    @classmethod
    def of(cls, region: str, instance_type: str) -> InstanceTypeNotOffered:
        """Args: the region's tag, and the cloud's name of the type."""
        error = cls(
            f"{region} does not offer the instance type {instance_type!r} to this account; choose"
            " another type, or exclude the region from plans"
        )
        error.region, error.instance_type = region, instance_type
        return error


class CloudAccessDenied(SkyplaneError, is_permanent=True):
    """A cloud refuses the credentials, or they lack a permission, which the message names.

    Args:
        of_credentials: there are none, or they are wrong or expired, so every call is refused.
    """

    of_credentials: bool = False

    def __init__(self, message: str, *, of_credentials: bool = False) -> None:
        super().__init__(message)
        self.of_credentials = of_credentials


class CloudUnavailable(SkyplaneError):
    """A cloud's API does not answer, or throttles, after retries.

    Attributes:
        regions: tags of the regions that do not answer; empty if all do not, or it is not known.
    """

    regions: tuple[str, ...] = ()


class ForeignHost(SkyplaneError, is_permanent=True):
    """A local fleet was used from another host than the one it runs on."""


class BudgetReached(SkyplaneError, is_permanent=True):
    """The transfer has reached its budget and was stopped.

    Permanent, since every automatic retry could cost as much again; a person can use the
    resume handle.
    """


class TooManyDeletes(SkyplaneError, is_permanent=True):
    """A transfer would delete more objects at its destination than its job allows."""


class TooManyFleets(SkyplaneError):
    """A deployment has as many living fleets as it may have, so this call starts no other one.

    Attributes:
        fleet_keys: keys of those fleets.
    """

    # A default for an error that was rebuilt from JSON.
    fleet_keys: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, deployment: str, max_active_fleets: int, fleet_keys: tuple[str, ...]
    ) -> TooManyFleets:
        """The error that names the fleets."""
        error = cls(
            f"deployment {deployment!r} has reached max_active_fleets, which is"
            f" {max_active_fleets}, with the fleets {', '.join(fleet_keys)}; wait until one of them"
            " has ended, or set a higher limit"
        )
        error.fleet_keys = fleet_keys
        return error


class FleetLost(SkyplaneError):
    """The gateways of a fleet are gone."""


class TeardownIncomplete(SkyplaneError):
    """Something of the fleet is still there after teardown."""


class MountFailed(SkyplaneError):
    """The tool that shows a place as a folder has failed, or left files that are not uploaded."""


class ObjectsDiffer(SkyplaneError):
    """A comparison found objects that are not equal at both places."""


class TransferFailed(SkyplaneError):
    """The transfer ended and at least one object is not at the destination.

    `result` is the `TransferResult`, if there is one.
    """

    # Defaults for an error that was rebuilt from JSON.
    result: object | None = None

    def __init__(
        self, message: str, *, result: object | None = None, is_permanent: bool | None = None
    ) -> None:
        super().__init__(message, is_permanent=is_permanent)
        self.result = result


class DestinationsFailed(TransferFailed):
    """Of a copy to several destinations, some do not have all objects.

    `results` has the `TransferResult` of each destination that has one, by its URL; `errors` says
    why the others failed.
    """

    results: Mapping[str, Any] = MappingProxyType({})
    errors: Mapping[str, SkyplaneError] = MappingProxyType({})

    @classmethod
    def of(
        cls, results: Mapping[str, Any], errors: Mapping[str, SkyplaneError]
    ) -> DestinationsFailed:
        reasons = "; ".join(f"{url}: {error.message}" for url, error in errors.items())
        made = cls(
            f"{len(errors)} of {len({*results, *errors})} destinations failed: {reasons}",
            is_permanent=all(error.is_permanent for error in errors.values()),
        )
        made.results, made.errors = results, errors
        return made
