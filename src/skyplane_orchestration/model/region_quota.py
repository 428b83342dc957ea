"""How much an account may run in a region."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegionQuota:
    """What an account may run in a region, and runs now.

    Args:
        region: region tag.
        name: the quota's name, as its owner has to ask for it; for machines that one has, the
            place that names them.
        vcpus: most vCPUs; None if they are not limited, or the cloud does not tell.
        used_vcpus: in use now.
        instances: most instances of a fleet; None if their number is not limited.
        series: begin of the names of the instance types that it limits, `n2-`; empty for all.
        of_relays: whether it limits relays only (True), or sources and sinks only (False); None
            for all. Spot relays have quotas of their own.
    """

    region: str
    name: str
    vcpus: int | None = None
    used_vcpus: int = 0
    instances: int | None = None
    series: str = ""
    of_relays: bool | None = None

    @property
    def free_vcpus(self) -> int | None:
        return None if self.vcpus is None else max(0, self.vcpus - self.used_vcpus)

    def limits(self, instance_type: str) -> bool:
        """Whether it limits instances of a type."""
        return instance_type.startswith(self.series)


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A quota of an account as its cloud tells it, for a report.

    Args:
        region: region tag; that of the cloud alone (`gcp`) for a quota of all regions.
        name: the quota's name, as its owner has to ask for it.
        what: what it counts, `vCPUs of spot instances`.
        limit: None if the cloud does not tell it.
        used: in use now.
    """

    region: str
    name: str
    what: str
    limit: int | None
    used: int

    @property
    def free(self) -> int | None:
        """None if the limit is not known."""
        return None if self.limit is None else max(0, self.limit - self.used)
