"""The most objects that a job may delete at its destination."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Self

from skyplane_orchestration.errors import ConfigurationInvalid

#: A wrong source differs from the destination in most objects, and a usual run in few.
DEFAULT_MAX_DELETE: Final = "50%"

_LIMIT: Final = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<percent>%?)")


@dataclass(frozen=True, slots=True)
class DeleteLimit:
    """A number of objects, or a share of those at the destination."""

    objects: int | None = None
    share: float | None = None

    @classmethod
    def from_text(cls, text: str) -> Self:
        """`1000` or `50%`. Raises ConfigurationInvalid for any other text."""
        found = _LIMIT.fullmatch(text)
        if found is not None and found["percent"] and float(found["number"]) <= 100:
            return cls(share=float(found["number"]) / 100)
        if found is not None and not found["percent"] and found["number"].isdecimal():
            return cls(objects=int(found["number"]))
        raise ConfigurationInvalid.about(
            "{max_delete} must be a number of objects such as 1000, or a share such as 50%, "
            "not {given!r}",
            given=text,
        )

    def most(self, there: int) -> int:
        """The most deletes where the destination has so many objects."""
        return self.objects if self.objects is not None else math.floor(there * (self.share or 0.0))
