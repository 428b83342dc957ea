"""Writes a grid directory from measurements, completely or not at all."""

from __future__ import annotations

import csv
import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.grid import Grid
from skyplane_orchestration.grids.importers.iperf3 import read_iperf3
from skyplane_orchestration.grids.importers.measurements import Measurements, Samples
from skyplane_orchestration.grids.importers.skyplane_csv import TIERS, read_skyplane
from skyplane_orchestration.grids.loader import load_grid
from skyplane_orchestration.grids.rows import is_day
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement


@dataclass(frozen=True, slots=True)
class Imported:
    """A written grid directory, and its measurements."""

    directory: Path
    grid: Grid
    measurements: Measurements


def import_grid(
    source: Path,
    out: Path,
    *,
    name: str = "",
    as_of: str = "",
    tier: str = "PREMIUM",
    latency: Path | None = None,
    prices: Path | None = None,
) -> Imported:
    """Write a grid directory from a Skyplane throughput table or a folder of iperf3 results.

    Args:
        out: the directory; it must be new or empty.
        name: of the grid; default: the name of the directory.
        as_of: date of the measurements, YYYY-MM-DD; default: that of the latest iperf3 result, else
            `unknown`.
        tier, latency, prices: for a Skyplane table, see `read_skyplane`.

    Raises GridInvalid when the source is unusable or `out` is not free; then nothing is left.
    """
    require_free(out)
    if as_of and not is_day(as_of):
        raise GridInvalid(f"--as-of {as_of!r} is not a date like 2026-11-20")
    if tier not in TIERS:
        raise GridInvalid(f"unknown tier {tier!r}; use {' or '.join(TIERS)}")
    for file in (source, latency, prices):
        if file is not None and not file.exists():
            raise GridInvalid(f"there is no {str(file)!r}")
    if source.is_dir():
        if latency or prices or tier != TIERS[0]:
            raise GridInvalid("a tier, latency and prices belong to a Skyplane table, not iperf3")
        found = read_iperf3(source)
    else:
        found = read_skyplane(source, tier=tier, latency=latency, prices=prices)
    about = {
        "source": f"imported from {source.name}: {found.kind}",
        "input": {"name": source.name, "sha256": found.sha256},
        "notes": list(found.notes),
    }
    return _written(out, name, about, found, as_of)


def write_profile(out: Path, measured: Iterable[EdgeMeasurement], name: str = "") -> Imported:
    """Write a grid directory from measured edges. Raises GridInvalid as `import_grid`."""
    rates = Samples()
    for one in measured:
        day = datetime.fromtimestamp(one.at_unix_s, UTC).date().isoformat()
        rates.add((one.src, one.dst), one.gbps / one.instances, day)
    found = Measurements(rates, "profile", sha256="")
    return _written(out, name, {"source": "measured by skyplane-orch grid profile"}, found, "")


def require_free(out: Path) -> None:
    """Raise GridInvalid for a place that is no new or empty directory."""
    if out.is_dir():
        if any(out.iterdir()):
            raise GridInvalid(f"{str(out)!r} is not empty; give --out a new directory")
    elif out.exists():
        raise GridInvalid(f"{str(out)!r} is a file; give --out a new directory")
    elif not out.resolve().parent.is_dir():
        raise GridInvalid(f"{str(out)!r} cannot be made: its parent is no directory")


def _written(
    out: Path, name: str, about: Mapping[str, object], found: Measurements, as_of: str
) -> Imported:
    """Writes the files beside `out` and renames the directory in one step."""
    dated = as_of or max(found.rates.as_of.values(), default="") or "unknown"
    about = {"name": name or out.resolve().name, "as_of": dated, "licence": "", **about}
    parent = out.resolve().parent
    try:
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=parent))
    except OSError as error:
        raise GridInvalid(f"{str(out)!r} cannot be written: {error.strerror}") from error
    try:
        _write_files(partial, about, found, as_of)
        load_grid(partial)
        partial.chmod(0o755)
        partial.rename(out.resolve())
    except OSError as error:
        raise GridInvalid(f"{str(out)!r} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Imported(out, load_grid(out), found)


def _write_files(
    directory: Path, about: Mapping[str, object], found: Measurements, as_of: str
) -> None:
    text = json.dumps(about, indent=2) + "\n"
    (directory / "grid.json").write_text(text, encoding="utf-8")
    shipped = load_grid()
    regions = [shipped.region(tag) for tag in found.regions]
    header = ("region", "city", "country", "latitude", "longitude")
    places = (
        (one.tag, one.city, one.country, _degrees(one.latitude), _degrees(one.longitude))
        for one in regions
    )
    _write_csv(directory / "regions.csv", header, places)
    rates = (
        (*pair, f"{gbps:.6f}".rstrip("0").rstrip("."), samples, as_of or day)
        for pair, gbps, samples, day in found.rates.rows()
    )
    _write_csv(directory / "throughput.csv", ("src", "dst", "gbps", "samples", "as_of"), rates)
    others = ("latency.csv", "rtt_ms", found.rtts), ("price.csv", "usd_per_gb", found.prices)
    for file, column, samples in others:
        if len(samples):
            rows = ((*pair, value) for pair, value, _, _ in samples.rows())
            _write_csv(directory / file, ("src", "dst", column), rows)


def _degrees(value: float) -> str:
    return "" if math.isnan(value) else f"{value:g}"


def _write_csv(file: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
