"""Reads a folder of iperf3 results: one JSON file (`iperf3 -J`, TCP) per run.

The file name gives the pair, `SRC__DST.json` or `SRC__DST__ANYTHING.json`, with region tags that
have `_` for the colon (`aws_us-east-1__gcp_us-east1__2.json`). Or a file `pairs.csv` (file,src,dst)
gives it. SRC sends and DST receives, also with --reverse; the rate is that of the receiver.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.importers.measurements import (
    Measurements,
    Pair,
    Samples,
    named_region,
)
from skyplane_orchestration.grids.rows import Findings, parsed_text, read_text, rows_of
from skyplane_orchestration.units import BITS_PER_GBIT

PAIRS_FILE: Final = "pairs.csv"

#: The connections for which a grid's rates are defined.
CONNECTIONS: Final = 64


def read_iperf3(folder: Path) -> Measurements:
    """Measurements in a folder; several files of a pair become their median.

    Raises GridInvalid for an unusable file, by name, and for an empty folder.
    """
    named = _pairs_file(folder)
    results = sorted(folder.glob("*.json"))
    missing = sorted(set(named) - {file.name for file in results})
    if missing:
        raise GridInvalid(f"{PAIRS_FILE} names {missing[0]!r}, which is not in {folder.name!r}")
    if not results:
        raise GridInvalid(f"{folder.name!r} has no iperf3 result (*.json)")
    rates = Samples()
    connections: Counter[int] = Counter()
    digest = hashlib.sha256()
    for file in results:
        pair = named.get(file.name) or _pair_in(file.name)
        result = parsed_text(read_text(file, file.name), file.name)
        if not isinstance(result, dict):
            raise GridInvalid(f"{file.name} is no iperf3 result: it must hold one JSON object")
        if result.get("error"):
            raise GridInvalid(f"{file.name} is a run that failed: {result['error']}")
        rates.add(pair, _received_gbps(file.name, result), _day(result))
        connections[_connections(result)] += 1
        digest.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return Measurements(
        rates,
        kind="iperf3 results",
        sha256=digest.hexdigest(),
        notes=(
            "Rates are what the receiver counted",
            "Several measurements of one pair became their median",
            *(
                f"{files} of the results were made with {number or 'an unknown number of'}"
                f" connections; a grid's rate is that of {CONNECTIONS}"
                for number, files in sorted(connections.items())
                if number != CONNECTIONS
            ),
        ),
    )


def _pairs_file(folder: Path) -> Mapping[str, Pair]:
    file = folder / PAIRS_FILE
    found: dict[str, Pair] = {}
    if not file.is_file():
        return found
    text = read_text(file, PAIRS_FILE)
    for row in rows_of(text, PAIRS_FILE, ("file", "src", "dst"), Findings()):
        place = f"{PAIRS_FILE} row {row.number}"
        if row["file"] in found:
            raise row.bad(f"{row['file']} is listed twice")
        found[row["file"]] = _ordered_pair(
            place, named_region(place, row["src"]), named_region(place, row["dst"])
        )
    return found


def _pair_in(name: str) -> Pair:
    parts = name.removesuffix(".json").split("__")
    if len(parts) < 2 or not all(parts[:2]):
        raise GridInvalid(
            f"{name} does not say which pair it is: call it SRC__DST.json with tags like"
            f" aws_us-east-1, or name it in {PAIRS_FILE}"
        )
    src, dst = (named_region(name, part.replace("_", ":", 1)) for part in parts[:2])
    return _ordered_pair(name, src, dst)


def _ordered_pair(place: str, src: str, dst: str) -> Pair:
    if src == dst:
        raise GridInvalid(f"{place}: src and dst are both {src!r}")
    return src, dst


def _value(document: Any, *names: str) -> Any:
    """What stands under these names, one in the other; None if nothing does."""
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _received_gbps(name: str, result: Mapping[str, Any]) -> float:
    protocol = _value(result, "start", "test_start", "protocol") or "TCP"
    if str(protocol).upper() != "TCP":
        raise GridInvalid(f"{name} is a run over {protocol}; a grid's rates are of TCP")
    if _value(result, "start", "test_start", "bidir"):
        raise GridInvalid(f"{name} is a run in both directions at once; measure one at a time")
    rate = _value(result, "end", "sum_received", "bits_per_second")
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise GridInvalid(
            f"{name} has no end.sum_received.bits_per_second: is it a client's output"
            " (iperf3 -c HOST -J)?"
        )
    if not (math.isfinite(rate) and rate >= 0):
        raise GridInvalid(f"{name}: end.sum_received.bits_per_second is {rate}")
    return rate / BITS_PER_GBIT


def _connections(result: Mapping[str, Any]) -> int:
    number = _value(result, "start", "test_start", "num_streams")
    return number if isinstance(number, int) else 0


def _day(result: Mapping[str, Any]) -> str:
    """The day of the run; "" if the result has none."""
    seconds = _value(result, "start", "timestamp", "timesecs")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        return ""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
