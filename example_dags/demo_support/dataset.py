"""The demo's objects. Their content is made from a seed, so a check needs no copy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

SEED: Final = "skyplane-orchestration demo 1"

#: It announces the other objects, so it must be written last.
MARKER: Final = "_SUCCESS"

_LARGE_OBJECTS: Final = 12
_LARGE_BYTES: Final = 16 << 20
_SMALL_OBJECTS: Final = 400
_SMALL_BYTES: Final = 8 << 10

#: Keys with characters that URL encoding, form encoding or file systems change.
_AWKWARD_KEYS: Final = (
    "odd/two words and  two blanks.csv",
    "odd/größe-東京-🛰.csv",
    "odd/a+b=c.csv",
    "odd/100%25%2Fdone.csv",
    "odd/semi;colon&amp,'quote'.csv",
)
_AWKWARD_BYTES: Final = 70_001


class PutsObjects(Protocol):
    """The part of a boto3 S3 client that writes objects."""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> object: ...


@dataclass(frozen=True, slots=True)
class DataSet:
    """Keys below a prefix, and their sizes in bytes."""

    sizes: Mapping[str, int]
    seed: str = field(default=SEED)

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes.values())

    def body(self, key: str) -> bytes:
        """The content of an object: SHAKE-256 (FIPS 202) over the seed and its key."""
        return hashlib.shake_256(f"{self.seed}/{key}".encode()).digest(self.sizes[key])

    def digest(self, key: str) -> str:
        """SHA-256 of the content, hex."""
        return hashlib.sha256(self.body(key)).hexdigest()

    def write(self, client: PutsObjects, bucket: str, prefix: str) -> None:
        """Put every object below `prefix`, the marker last."""
        for key in self.sizes:
            client.put_object(Bucket=bucket, Key=prefix + key, Body=self.body(key))


def demo_data_set(
    *, large: int = _LARGE_OBJECTS, large_bytes: int = _LARGE_BYTES, small: int = _SMALL_OBJECTS
) -> DataSet:
    """Large objects, many small ones, an empty one, awkward keys and a marker."""
    sizes = {f"large/{number:03}.bin": large_bytes for number in range(large)}
    sizes |= {f"small/part-{number:05}.json": _SMALL_BYTES for number in range(small)}
    sizes |= dict.fromkeys(_AWKWARD_KEYS, _AWKWARD_BYTES)
    sizes["odd/empty"] = 0
    sizes[MARKER] = 2
    return DataSet(sizes)
