"""The comparison of two places of a million objects with a manifest, each step in its own process.

The listings are made up, so no store holds the objects; the manifest is a real one, in files, which
`sync` would write. What `sync` does beside the comparison is not in the figures.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench.report import Case, spread_of
from skyplane_gateway.common.objects import ObjectInfo, StoreSpec
from skyplane_gateway.manifest.document import Snapshot
from skyplane_gateway.manifest.reader import ManifestReader
from skyplane_gateway.selection.difference import Ends
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_gateway.selection.selector import select
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.storage.manifest.commit import ManifestCommit
from skyplane_orchestration.storage.manifest.rows import SCHEMA

MILLION: Final = "million"
SOURCE, COPY = "source/", "copy/"
_SIZE_BYTES: Final = 1024
_SOURCE_SPEC: Final = StoreSpec("s3", "here")
_COPY_SPEC: Final = StoreSpec("s3", "there")


def made_up(folder: str, objects: int) -> Iterator[ObjectInfo]:
    """A listing in the order of keys. All were written at once, so times prove nothing."""
    for number in range(objects):
        yield ObjectInfo(folder + name_of(number), _SIZE_BYTES, etag_of(folder, number), 1.7e9)


def name_of(number: int) -> str:
    return f"part={number // 1000:04d}/{number:07d}.parquet"


def etag_of(folder: str, number: int) -> str:
    return f'"{number:026d}{folder[:-1]:>6}"'


def kept_in(folder: Path) -> LocalStore:
    """The store of the copies: the files of its manifest are there, and are an S3 store's."""
    store = LocalStore(StoreSpec("file", str(folder)))
    store.spec = _COPY_SPEC
    return store


def commit(folder: Path, objects: int) -> None:
    """What the run that made the copies commits."""
    numbers = range(objects)
    columns = {
        "key": map(name_of, numbers),
        "copy": (etag_of(COPY, number) for number in numbers),
        "source_key": (SOURCE + name_of(number) for number in numbers),
        "source_version": (etag_of(SOURCE, number) for number in numbers),
    }
    same: dict[str, object] = {"state": "copied", "source_store": _SOURCE_SPEC.name, "run": "bench"}
    same |= {"bytes": _SIZE_BYTES, "source_time": 1, "crc32c": 1, "commit": 0, "recorded": 1}
    arrays = [
        pa.array(columns[field.name], field.type, size=objects)
        if field.name in columns
        else pa.repeat(pa.scalar(same[field.name], field.type), objects)
        for field in SCHEMA
    ]
    snapshot = Snapshot("1", 0, "bench", "", "", 0.0, objects, 0, ())
    ManifestCommit(kept_in(folder), COPY, snapshot).run(pa.table(arrays, schema=SCHEMA))


def compare_million(folder: Path, objects: int) -> None:
    """Compare all objects. Raises AssertionError if one would be copied."""
    rule = SelectionRule(
        source_prefix=SOURCE,
        destination_prefix=COPY,
        recursive=True,
        conflict="replace-if-different",
    )
    manifest = ManifestReader(kept_in(folder), COPY)
    decided = select(
        rule,
        lambda _: made_up(SOURCE, objects),
        lambda prefix: manifest.beside(made_up(COPY, objects), prefix),
        ends=lambda: Ends("s3", "s3", source_name=_SOURCE_SPEC.name),
    )
    others = [one.reason for one in decided if "as the manifest has them" not in one.reason]
    if others:
        raise AssertionError(f"{len(others)} objects are not in the manifest: {manifest.trouble}")


def print_step(step: str, folder: str, objects: int) -> None:
    """Of a process that does nothing else: seconds of the step, and its peak memory.

    The time that it takes to make the listings up does not count.
    """
    began_s = time.perf_counter()
    for place in (SOURCE, COPY) if step == "compare" else ():
        deque(made_up(place, objects), 0)
    listed_s = time.perf_counter()
    {"commit": commit, "compare": compare_million}[step](Path(folder), objects)
    seconds = time.perf_counter() - listed_s - (listed_s - began_s)
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"mib": kib / 1024, "seconds": seconds}))


def million_cases(rounds: int, objects: int) -> list[Case]:
    """`million` is the memory of the comparison; what a commit of all rows takes has no floor."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:

        def ran(step: str) -> dict[str, float]:
            code = f"from bench import million; million.print_step({step!r}, {folder!r}, {objects})"
            answer = subprocess.check_output([sys.executable, "-c", code], text=True)
            return dict(json.loads(answer))

        committed = [ran("commit")]
        compared = [ran("compare") for _ in range(rounds)]
    return [
        _case(MILLION, compared, "mib", floor=600, goal=300),
        _case(f"{MILLION}-seconds", compared, "seconds", floor=10, goal=5),
        _case(f"{MILLION}-commit", committed, "mib"),
        _case(f"{MILLION}-commit-seconds", committed, "seconds"),
    ]


def _case(
    name: str,
    rows: Sequence[dict[str, float]],
    figure: str,
    floor: float | None = None,
    goal: float | None = None,
) -> Case:
    values = [row[figure] for row in rows]
    unit = {"mib": "MiB", "seconds": "s"}[figure]
    return Case(
        name,
        statistics.median(values),
        unit,
        floor=floor,
        goal=goal,
        spread=spread_of(values),
    )
