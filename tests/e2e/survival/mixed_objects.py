"""Objects of all sorts: empty and of several parts, odd and long keys, headers and metadata."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

MIB: Final = 1 << 20
CHUNK_BYTES: Final = 5 * MIB
MULTIPART_BYTES: Final = 2 * CHUNK_BYTES + 4321

#: All stores of the chain hold keys of that length; on Azure it is the number of characters.
LONGEST_KEY_BYTES: Final = 1024

#: The sizes of small objects, in turn.
_SMALL_BYTES: Final = (0, 1, 1024, 40_000, 1024, 300_000, 1_000_000, 600_000)

_TYPES: Final = ("text/csv", "application/x-parquet", "text/plain; charset=utf-8")


@dataclass(frozen=True, slots=True)
class MixedObject:
    """An object; `headers` are arguments of boto3's `put_object`."""

    key: str
    size_bytes: int
    headers: dict[str, Any]
    seed: int

    @property
    def body(self) -> bytes:
        return random.Random(f"{self.seed}/{self.key}").randbytes(self.size_bytes)

    @property
    def least_uploads(self) -> int:
        """Requests with bytes of it that a copy needs."""
        return max(1, math.ceil(self.size_bytes / CHUNK_BYTES))


def mixed_objects(seed: int, count: int, multipart: int, prefix: str) -> list[MixedObject]:
    """`count` objects below a prefix, `multipart` of them of three parts, in random places."""
    dice = random.Random(f"mixed/{seed}")
    sizes = [MULTIPART_BYTES] * multipart
    sizes += [_SMALL_BYTES[number % len(_SMALL_BYTES)] for number in range(count - multipart)]
    dice.shuffle(sizes)
    return [
        MixedObject(key, size, _headers(number), seed)
        for number, (key, size) in enumerate(zip(_keys(count, prefix), sizes, strict=True))
    ]


def _keys(count: int, prefix: str) -> Iterator[str]:
    """The last one announces the others; one of each ten is odd, one of each fifty is long."""
    for number in range(count - 1):
        if number % 50 == 7:
            yield _long_key(f"{prefix}long{number:05d}/")
        elif number % 10 == 3:
            yield f"{prefix}ünï 日本 +%25&?#=;,'{number % 3}/o {number:05d} é.csv"
        else:
            yield f"{prefix}d{number % 7}/o{number:05d}"
    yield f"{prefix}_SUCCESS"


def _long_key(start: str) -> str:
    """With segments that also a file system can hold."""
    key = start
    while len(key) < LONGEST_KEY_BYTES:
        key += "x" * 199 + "/"
    return key[: LONGEST_KEY_BYTES - 1] + "z"


def _headers(number: int) -> dict[str, Any]:
    """Every second object has some; each third all."""
    found: dict[str, Any] = {"ContentType": _TYPES[number % len(_TYPES)]}
    if number % 2:
        found["Metadata"] = {"colour": "blue", "with-dash": f"value {number}", "under_score": "="}
        found["CacheControl"] = "max-age=60"
    if number % 3 == 0:
        found["ContentEncoding"] = "gzip"
        found["ContentLanguage"] = "de"
        found["ContentDisposition"] = f'attachment; filename="{number}.csv"'
    return found
