"""The regions of a grid."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GridRegion:
    """One region of a grid. Latitude and longitude are degrees of the city.

    `state` is `default` or empty where every account has the region; `optin` (also `optin-new`)
    where it has to be enabled; `restricted` where its cloud grants it on request.
    """

    tag: str
    city: str = ""
    country: str = ""
    latitude: float = float("nan")
    longitude: float = float("nan")
    price_class: str = ""
    price_verified: bool = True
    state: str = ""

    @property
    def cloud(self) -> str:
        return self.tag.partition(":")[0]

    @property
    def name(self) -> str:
        return self.tag.partition(":")[2]
