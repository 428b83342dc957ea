"""What the listing of a source shows beside its volume and number of objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class SourceContents:
    """Shares of a job's bytes, which hold for any part of its volume.

    Attributes:
        largest: of the largest object; 0 where that is not known.
        classes: storage class, as the store names it -> of its objects; without the usual class.
    """

    largest: float = 0.0
    classes: Mapping[str, float] = field(default_factory=dict, hash=False)


#: Of a source that was not listed.
NOT_LISTED: Final = SourceContents()
