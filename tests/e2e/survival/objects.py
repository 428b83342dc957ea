"""The objects of a survival run: as many, as mixed and as large in all as was asked for."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The smallest and the largest object; both are always there.
SMALLEST_BYTES: Final = 1
LARGEST_BYTES: Final = 64 << 20

SMALL_BYTES: Final = 64 << 10

#: Written after everything else, as its name asks for.
LAST_KEY: Final = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class ObjectSet:
    """Keys and sizes; the bytes follow from seed and key."""

    seed: int
    size_bytes: dict[str, int]

    @property
    def total_bytes(self) -> int:
        return sum(self.size_bytes.values())

    def bodies(self) -> Iterator[tuple[str, bytes]]:
        for key, size in self.size_bytes.items():
            yield key, random.Random(f"{self.seed}/{key}").randbytes(size)


def object_set(seed: int, count: int, total_bytes: int) -> ObjectSet:
    """`count` objects of 1 B to 64 MiB, `total_bytes` in all, or less by at most 64 KiB each.

    Their sizes are spread evenly over all orders of magnitude, as long as the total allows;
    then over those of small objects.
    """
    dice = random.Random(seed)
    sizes = [SMALLEST_BYTES, LARGEST_BYTES]
    left = total_bytes - sum(sizes)
    while len(sizes) < count - 1:
        is_room = left - count * SMALL_BYTES > LARGEST_BYTES
        size = round(math.exp(dice.uniform(0, math.log(LARGEST_BYTES if is_room else SMALL_BYTES))))
        sizes.append(size)
        left -= size
    sizes.append(min(left, LARGEST_BYTES))
    dice.shuffle(sizes)
    keys = [f"d{index % 7}/o{index:05d}" for index in range(count - 1)]
    return ObjectSet(seed, dict(zip([*keys, LAST_KEY], sizes, strict=True)))


def fill(objects: ObjectSet, put: Callable[[str, bytes], None]) -> dict[str, str]:
    """Put every object; key -> SHA-256 of what was put."""
    digests = {}
    for key, body in objects.bodies():
        digests[key] = hashlib.sha256(body).hexdigest()
        put(key, body)
    return digests


def digests_below(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256, of all files below a folder of a server's file system."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[str(path.relative_to(folder))] = digest
    return found
