"""Reads places as file systems, in an environment with s3fs, gcsfs and adlfs; stdin names them."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from pyarrow import parquet
from tests.transfer import samples

from skyplane_orchestration import Location


def read(given: dict[str, Any]) -> dict[str, Any]:
    place = Location(**given)
    filesystem, path = place.fsspec()
    with filesystem.open(f"{path}/raw.bin", "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    result = samples.result(destination=place.url)
    with result.open("table.parquet", at=place) as file:
        rows = parquet.read_table(file).to_pylist()
    assert parquet.read_table(f"{path}/table.parquet", filesystem=filesystem).to_pylist() == rows
    with filesystem.open(f"{path}/written.txt", "wb") as file:
        file.write(b"written")
    names = sorted(name.rpartition("/")[2] for name in filesystem.ls(path))
    return {"digest": digest, "rows": rows, "names": names}


print(json.dumps([read(given) for given in json.load(sys.stdin)]))
