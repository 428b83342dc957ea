"""Reads the files of a grid directory: regions, limits, documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.gateway_speed import GatewaySpeed
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.grid import (
    FROM_SHIPPED,
    FROM_TABLE,
    InstanceType,
    StorageLimit,
    VcpuQuota,
)
from skyplane_orchestration.grids.rows import Findings, Row, parsed_text, read_rows, read_text
from skyplane_orchestration.model.location import KNOWN_CLOUDS

_RATIO_FILE: Final = "instance_prices.csv"
_TYPE_COLUMNS = (
    "cloud",
    "instance_type",
    "vcpus",
    "egress_gbps",
    "ingress_gbps",
    "connection_limit",
    "usd_per_hour",
    "instance_limit",
)
#: Optional, all of them or none.
_SPEED_COLUMNS = tuple(f"{role}_gbps_per_vcpu" for role in ("source", "relay", "sink"))


def shipped_files() -> Traversable:
    return files("skyplane_grids")


def read_json(directory: Traversable, name: str) -> Mapping[str, Any] | None:
    """A JSON object of the directory; None without that file. Raises GridInvalid."""
    file = directory / name
    if not file.is_file():
        return None
    loaded = parsed_text(read_text(file, name), name)
    if not isinstance(loaded, dict):
        raise GridInvalid(f"{name} must hold one JSON object")
    return loaded


# ---------------------------------------------------------------- regions


def read_regions(
    directory: Traversable, findings: Findings, *, is_on_shipped: bool = False
) -> tuple[GridRegion, ...]:
    """Regions of regions.csv, of the base grid, or of throughput.csv, completed from the shipped
    grid.
    """
    strict = Findings()
    known = {
        row["region"]: row
        for row in read_rows(shipped_files(), "regions.csv", ("region", "price_class"), strict)
    }
    found: dict[str, GridRegion] = {}
    for row in read_rows(directory, "regions.csv", ("region",), findings):
        with findings.catching():
            tag = row.tag("region")
            if tag in found:
                raise row.bad(f"{tag} is listed twice")
            shipped = known[tag].cells if tag in known else {}
            given = {column: cell for column, cell in row.cells.items() if cell}
            found[tag] = _region(tag, Row(row.file, row.number, {**shipped, **given}))
    if not found and is_on_shipped:
        found = {tag: _region(tag, row) for tag, row in known.items()}
    if not found:
        for row in read_rows(directory, "throughput.csv", ("src", "dst"), findings):
            with findings.catching():
                for tag in (row.tag("src"), row.tag("dst")):
                    found.setdefault(tag, _region(tag, known.get(tag, Row(row.file, 0, {}))))
    if not found:
        raise GridInvalid("the grid has no region: give it a regions.csv or a throughput.csv")
    return tuple(found.values())


def _region(tag: str, row: Row) -> GridRegion:
    return GridRegion(
        tag=tag,
        city=row.get("city"),
        country=row.get("country"),
        latitude=_degrees(row, "latitude", 90.0),
        longitude=_degrees(row, "longitude", 180.0),
        price_class=row.get("price_class"),
        price_verified=(row.get("price_verified") or "yes") == "yes",
        state=row.get("state"),
    )


def _degrees(row: Row, column: str, limit: float) -> float:
    """A coordinate; nan if the row has none."""
    if not row.get(column):
        return math.nan
    degrees = row.quantity(column, low=-limit)
    if degrees > limit:
        raise row.bad(f"{column} is {degrees:g}, above {limit:g} degrees")
    return degrees


# ---------------------------------------------------------------- limits


def read_types(directory: Traversable, findings: Findings) -> tuple[InstanceType, ...]:
    """Types of limits.csv; clouds that it does not name keep the shipped types."""
    own: list[InstanceType] = []
    for row in read_rows(directory, "limits.csv", _TYPE_COLUMNS, findings):
        with findings.catching():
            kind = _instance_type(row, FROM_TABLE)
            if any((kind.cloud, kind.name) == (one.cloud, one.name) for one in own):
                raise row.bad(f"{kind.cloud} {kind.name} is listed twice")
            own.append(kind)
    named = {kind.cloud for kind in own}
    shipped = [
        _instance_type(row, FROM_SHIPPED)
        for row in read_rows(shipped_files(), "limits.csv", _TYPE_COLUMNS, Findings())
    ]
    return (*own, *(kind for kind in shipped if kind.cloud not in named))


def _instance_type(row: Row, provenance: str) -> InstanceType:
    if row["cloud"] not in KNOWN_CLOUDS:
        raise row.bad(f"unknown cloud {row['cloud']!r}; use one of {', '.join(KNOWN_CLOUDS)}")
    if not row["instance_type"]:
        raise row.bad("instance_type is empty")
    kind = InstanceType(
        cloud=row["cloud"],
        name=row["instance_type"],
        vcpus=row.whole("vcpus"),
        egress_gbps=row.quantity("egress_gbps"),
        ingress_gbps=row.quantity("ingress_gbps"),
        connection_limit=row.whole("connection_limit", low=1),
        usd_per_hour=row.quantity("usd_per_hour"),
        instance_limit=row.whole("instance_limit"),
        as_of=row.day("as_of"),
        source=row.get("source"),
        provenance=provenance,
        burst_egress_gbps=row.optional_quantity("burst_egress_gbps"),
        burst_ingress_gbps=row.optional_quantity("burst_ingress_gbps"),
        burst_s=row.optional_quantity("burst_s") or 0.0,
        speed=_gateway_speed(row),
    )
    if kind.has_burst != (kind.burst_s > 0):
        raise row.bad("a burst needs a rate (burst_egress_gbps, burst_ingress_gbps) and burst_s")
    at_burst = kind.bursting()
    if at_burst.egress_gbps < kind.egress_gbps or at_burst.ingress_gbps < kind.ingress_gbps:
        raise row.bad("a burst rate is below the sustained one")
    return kind


def _gateway_speed(row: Row) -> GatewaySpeed | None:
    rates = [row.optional_quantity(column) for column in _SPEED_COLUMNS]
    if rates == [None, None, None]:
        return None
    source, relay, sink = rates
    if not (source and relay and sink):
        raise row.bad(f"{', '.join(_SPEED_COLUMNS)} need a rate above 0 each, or none")
    return GatewaySpeed(source, relay, sink, row.day("speed_as_of"), row.get("speed_source"))


def read_price_ratios(
    directory: Traversable, types: Sequence[InstanceType], findings: Findings
) -> dict[str, float]:
    """instance_prices.csv: region -> ratio. Clouds with shipped types have the shipped ratios."""
    found: dict[str, float] = {}
    for row in read_rows(directory, _RATIO_FILE, ("region", "ratio"), findings):
        with findings.catching():
            tag, ratio = row.tag("region"), row.quantity("ratio")
            if tag in found:
                raise row.bad(f"{tag} is listed twice")
            if ratio == 0:
                raise row.bad("ratio is 0")
            row.day("as_of")
            found[tag] = ratio
    shipped = {kind.cloud for kind in types if kind.provenance == FROM_SHIPPED}
    for row in read_rows(shipped_files(), _RATIO_FILE, ("region", "ratio"), Findings()):
        tag = row.tag("region")
        if tag.partition(":")[0] in shipped:
            found.setdefault(tag, row.quantity("ratio"))
    return found


def read_storage(directory: Traversable, findings: Findings) -> tuple[StorageLimit, ...]:
    """storage.csv, in its order; an empty rate is no limit."""
    found: list[StorageLimit] = []
    columns = ("cloud_or_region_glob", "read_gbps", "write_gbps")
    for row in read_rows(directory, "storage.csv", columns, findings):
        with findings.catching():
            if not row[columns[0]]:
                raise row.bad(f"{columns[0]} is empty")
            found.append(
                StorageLimit(
                    row[columns[0]],
                    row.optional_quantity("read_gbps"),
                    row.optional_quantity("write_gbps"),
                    row.day("as_of"),
                )
            )
    return tuple(found)


def read_quotas(directory: Traversable, findings: Findings) -> tuple[VcpuQuota, ...]:
    """quotas.csv, in its order."""
    found: list[VcpuQuota] = []
    for row in read_rows(directory, "quotas.csv", ("region_glob", "vcpus"), findings):
        with findings.catching():
            if not row["region_glob"]:
                raise row.bad("region_glob is empty")
            found.append(VcpuQuota(row["region_glob"], row.whole("vcpus"), row.day("as_of")))
    return tuple(found)
