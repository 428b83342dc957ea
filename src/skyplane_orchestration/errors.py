"""The one error tree: what the control plane adds to `skyplane_gateway.errors`.

`SkyplaneError` is the root of both. Catch a leaf to handle it, the root to
report it; `is_permanent` says whether a retry of the same call can help, and is
what the operators use to choose between Airflow's retry and its fail-for-good.
"""

from __future__ import annotations

from skyplane_gateway.errors import (
    AddressTaken,
    AlreadyExists,
    Cancelled,
    ChecksumMismatch,
    ConfigurationInvalid,
    CredentialsExpired,
    EmptySource,
    GatewayDraining,
    GatewayError,
    GatewayLost,
    GatewayUnreachable,
    InternalError,
    InvalidKey,
    JournalUnreadable,
    MetadataNotCarried,
    MissingExtra,
    NotAuthorised,
    NotFound,
    NotRestored,
    ObjectsFailed,
    ObjectTooLarge,
    Overloaded,
    PathEnded,
    PermissionDenied,
    PreconditionFailed,
    ReadBackMismatch,
    SkyplaneError,
    StaleEpoch,
    Stopped,
    StoreError,
    StoreUnavailable,
    Throttled,
    Unauthenticated,
    UnknownTransfer,
    from_dict,
)

__all__ = [
    "AddressTaken",
    "AlreadyExists",
    "BudgetReached",
    "Cancelled",
    "ChecksumMismatch",
    "ConfigurationInvalid",
    "CredentialsExpired",
    "EmptySource",
    "FleetLost",
    "ForeignHost",
    "GatewayDraining",
    "GatewayError",
    "GatewayLost",
    "GatewayUnreachable",
    "GridInvalid",
    "InternalError",
    "InvalidKey",
    "InvalidLocation",
    "JournalUnreadable",
    "MetadataNotCarried",
    "MissingExtra",
    "NotAuthorised",
    "NotFound",
    "NotRestored",
    "ObjectTooLarge",
    "ObjectsFailed",
    "Overloaded",
    "PathEnded",
    "PermissionDenied",
    "PlanError",
    "PlanInfeasible",
    "PreconditionFailed",
    "ProvisionFailed",
    "ReadBackMismatch",
    "SkyplaneError",
    "SolverFailed",
    "StaleEpoch",
    "Stopped",
    "StoreError",
    "StoreUnavailable",
    "TeardownIncomplete",
    "Throttled",
    "TransferFailed",
    "Unauthenticated",
    "UnknownRegion",
    "UnknownTransfer",
    "from_dict",
]


class InvalidLocation(ConfigurationInvalid):
    """A URL, region tag or endpoint that cannot name a place."""

    code = "invalid-location"


class UnknownRegion(InvalidLocation):
    """A region tag that the grid does not have; the message offers the nearest names."""

    code = "unknown-region"


class GridInvalid(ConfigurationInvalid):
    """A grid directory is broken; the message names file and row."""

    code = "grid-invalid"


class PlanError(SkyplaneError):
    """No plan could be made."""

    code = "plan-error"
    is_permanent = True


class PlanInfeasible(PlanError):
    """No plan meets the objective.

    Args:
        message: what was asked and what binds, in words.
        binding: names of the constraints that bind.
        most_gbps: the largest throughput that is possible, where that is the question.
        least_usd, least_usd_per_gb: the smallest price that is, for the job or per GB.
        least_s: the earliest deadline that is. A second request with such a value succeeds.
    """

    code = "plan-infeasible"
    # For an error that came as plain data from another process.
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
        """With what binds and what can be had, for scripts; what is not known is left out."""
        names = ("most_gbps", "least_usd", "least_usd_per_gb", "least_s")
        known = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {**super().to_dict(), "binding": list(self.binding), **known}


class SolverFailed(PlanError):
    """HiGHS stopped without an answer (a limit or numerical trouble)."""

    code = "solver-failed"
    is_permanent = False


class ProvisionFailed(SkyplaneError):
    """The fleet did not come up; what had come up was taken down again."""

    code = "provision-failed"


class ForeignHost(SkyplaneError):
    """A local fleet was used from another host than the one it runs on."""

    code = "foreign-host"
    is_permanent = True


class BudgetReached(SkyplaneError):
    """The transfer has cost what it may, and was stopped.

    Permanent, because an automatic retry could cost as much again. A person can resume the
    transfer with its handle.
    """

    code = "budget-reached"
    is_permanent = True


class FleetLost(SkyplaneError):
    """The gateways of a fleet are gone."""

    code = "fleet-lost"


class TeardownIncomplete(SkyplaneError):
    """Something of the fleet is still there after teardown."""

    code = "teardown-incomplete"


class TransferFailed(SkyplaneError):
    """The transfer ended and at least one object is not at the destination.

    `result` is the whole outcome, when one could be had.
    """

    code = "transfer-failed"
    # For an error that came as plain data from another process.
    result: object | None = None

    def __init__(
        self, message: str, *, result: object | None = None, is_permanent: bool | None = None
    ) -> None:
        super().__init__(message, is_permanent=is_permanent)
        self.result = result
