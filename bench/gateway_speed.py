"""What one busy vCPU of a gateway carries in each role, as the planner counts it.

    python -m bench.gateway_speed [--json] [--smoke] [--rounds N]

Stores are versitygw over TLS, frames are sealed. Gateways and the server share the processors of
this machine, so the figures are bits over the CPU seconds of one gateway, in Gbit/s per vCPU: those
of a source that reads from the store, of a relay, and of a sink that writes to the store. The other
ends are null stores (`bench.null_store`). The shipped `limits.csv` has these figures. Those with
files at both ends are what `skyplane-orch doctor --speed` measures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Final
from unittest.mock import patch

import boto3
from tests import https_server
from tests.faults import versitygw

from bench import null_store
from bench.report import Case, finish, spread_of
from skyplane_gateway.stores import registry
from skyplane_orchestration.cli.own_speed import Chain, chain, speed_with_files
from skyplane_orchestration.grids.gateway_speed import RELAY, SINK, SOURCE
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.local import LocalOptions

MIB: Final = 1 << 20
OBJECT_BYTES, OBJECTS, ROUNDS = 64 * MIB, 16, 5
BUCKET: Final = "speed"


class Bench:
    """A chain of three gateways, and a server of S3 over TLS."""

    def __init__(self, folder: Path, gateways: Chain, url: str, objects: int) -> None:
        self._gateways, self._url, self._numbers = gateways, url, count()
        self._folder, self._made_up = folder, f"{folder}/{objects}x{OBJECT_BYTES}/"

    def round(self) -> dict[str, float]:
        """Gbit/s per vCPU by case."""
        number = next(self._numbers)
        # As at the cloud itself, whose checksums need no second look.
        trusts = {"checksum": "trusted"}
        store = Location(f"s3://{BUCKET}/{number}/", endpoint_url=self._url, options=trusts)
        written = self._gateways.gbps_per_vcpu(Location(self._made_up), store)
        nothing = Location(f"{self._folder}/none-{number}/")
        read = self._gateways.gbps_per_vcpu(store, nothing, "none")
        return {
            SOURCE: read[SOURCE],
            RELAY: min(read[RELAY], written[RELAY]),
            SINK: written[SINK],
            **{f"{role}, files": gbps for role, gbps in speed_with_files().items()},
        }


@contextmanager
def opened(objects: int) -> Iterator[Bench]:
    """The bench, with its files in memory. Raises versitygw.Unavailable."""
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() else None
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="speed-", dir=where)))
        (folder / "s3").mkdir()
        pem = https_server.certificate(folder)
        server = open_.enter_context(
            versitygw.running(folder / "s3", "--data-integrity-etag", certificate=pem)
        )
        environment = {
            "AWS_ACCESS_KEY_ID": server.access_key_id,
            "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
            "AWS_REGION": "us-east-1",
            "AWS_CA_BUNDLE": str(pem),
            "REQUESTS_CA_BUNDLE": str(pem),
        }
        open_.enter_context(patch.dict(os.environ, environment))
        open_.enter_context(patch.dict(registry._MODULES, null_store.MODULES))
        boto3.client("s3", endpoint_url=server.url).create_bucket(Bucket=BUCKET)
        options = LocalOptions(
            run_root=folder / "run",
            command=null_store.COMMAND,
            processes_per_instance=1,
        )
        yield Bench(folder, open_.enter_context(chain(options)), server.url, objects)


def cases_of(rounds: Sequence[dict[str, float]]) -> list[Case]:
    """Medians over the rounds."""
    return [
        Case(
            name,
            statistics.median(row[name] for row in rounds),
            "Gbit/s per vCPU",
            spread=spread_of([row[name] for row in rounds]),
        )
        for name in rounds[0]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--smoke", action="store_true", help="one round of one object")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    options = parser.parse_args(arguments)
    objects, runs = (1, 1) if options.smoke else (OBJECTS, options.rounds)
    made: list[dict[str, float]] = []
    try:
        with opened(objects) as bench:
            bench.round()  # The first pays for imports and connections.
            made = [bench.round() for _ in range(runs)]
    except versitygw.Unavailable as error:
        print(f"gateway_speed is left out: {error}", file=sys.stderr)
    return finish(
        "gateway_speed", cases_of(made) if made else [], runs=len(made), as_json=options.json
    )


if __name__ == "__main__":
    raise SystemExit(main())
