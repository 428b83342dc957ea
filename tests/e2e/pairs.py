"""Two places, and the command that copies between them inside the test's process."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.e2e.places import Place

from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.stores.base import read_object
from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.e2e.conftest import Home

MIB: Final = 1 << 20
SCHEMES: Final = {"s3": "s3", "gcs": "gs", "azure": "az", "file": "file"}
#: Of what is written to a source, unless the test says others.
HEADERS: Final = ObjectAttributes(content_type="text/csv", metadata=(("colour", "blue"),))
REGIONS: Final = {"s3": "aws:us-east-1", "gcs": "gcp:us-east1", "azure": "azure:eastus"}

#: The command with this verb and these arguments; its result.
Run = Callable[..., dict[str, Any]]


def runner(
    home: Home, places: Mapping[str, Place], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Run:
    """Runs the command as a user of all places, without gateways unless the arguments say more."""
    for more in (home.environment, *(place.environment for place in places.values())):
        for name, value in more.items():
            monkeypatch.setenv(name, value)

    def run(verb: str, *arguments: str) -> dict[str, Any]:
        found = main([verb, "--gateways", "never", "--chunk-mib", "5", "--json", *arguments])
        said = capsys.readouterr()
        assert found == 0, said.err
        document: dict[str, Any] = json.loads(said.out)
        return document

    return run


class Pair:
    """A new folder at each of two places.

    Args:
        options: of the destination's store, for the test's own requests.
    """

    def __init__(self, source: Place, destination: Place, **options: str) -> None:
        self.prefix = f"{uuid.uuid4().hex[:8]}/"
        self.ends = source, destination
        self.here, self.there = source.store(), destination.store(**options)

    def close(self) -> None:
        self.here.close()
        self.there.close()

    @property
    def arguments(self) -> list[str]:
        found = []
        for side, place in zip(("src", "dst"), self.ends, strict=True):
            found.append(f"{SCHEMES[place.kind]}://{place.bucket}/{side}-{self.prefix}")
            if place.kind != "file":
                found += [f"--{side}-endpoint", place.endpoint]
                found += [f"--{side}-region", REGIONS[place.kind]]
        return found

    def source_key(self, name: str) -> str:
        return self.ends[0].key(f"src-{self.prefix}{name}")

    def copy_key(self, name: str) -> str:
        return self.ends[1].key(f"dst-{self.prefix}{name}")

    def write(self, name: str, data: bytes, attributes: ObjectAttributes = HEADERS) -> None:
        """To the source; a file gets no attributes."""
        given = None if self.ends[0].kind == "file" else attributes
        self.here.put(self.source_key(name), data, attributes=given)

    def read(self, name: str) -> bytes:
        """What the source has."""
        return read_object(self.here, self.source_key(name), max_bytes=8 * MIB)[1]

    def copied(self, name: str) -> bytes:
        """What the destination has."""
        return read_object(self.there, self.copy_key(name), max_bytes=8 * MIB)[1]
