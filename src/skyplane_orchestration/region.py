"""Region tags: `cloud:region`, the one name of a place everywhere in the project."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from skyplane_orchestration.errors import InvalidLocation

CLOUDS = ("aws", "gcp", "azure")
LOCAL_CLOUD = "local"
KNOWN_CLOUDS = (*CLOUDS, LOCAL_CLOUD)

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_SUGGESTIONS = 3


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """One region of one cloud; `str(region)` is its tag."""

    cloud: str
    name: str

    def __post_init__(self) -> None:
        if self.cloud not in KNOWN_CLOUDS:
            raise InvalidLocation(
                f"unknown cloud {self.cloud!r} in region tag {self.tag!r};"
                f" use one of {', '.join(KNOWN_CLOUDS)}"
            )
        if not _NAME.match(self.name):
            raise InvalidLocation(
                f"region name {self.name!r} in tag {self.tag!r} is not made of lower-case"
                " letters, digits and single hyphens"
            )

    @property
    def tag(self) -> str:
        return f"{self.cloud}:{self.name}"

    @property
    def is_local(self) -> bool:
        """A place without a cloud: this machine, a private network."""
        return self.cloud == LOCAL_CLOUD

    def __str__(self) -> str:
        return self.tag


def parse_region_tag(text: str) -> Region:
    """The region that `cloud:region` names, e.g. `aws:us-east-1`.

    Raises InvalidLocation when the text is not a tag or the cloud is unknown.
    """
    cloud, colon, name = text.strip().partition(":")
    if not colon:
        raise InvalidLocation(
            f"{text!r} is not a region tag; write cloud:region, for example aws:us-east-1"
        )
    return Region(cloud, name)


def nearest_names(tag: str, known: Iterable[str]) -> list[str]:
    """Up to three of `known` that look most like `tag`, best first; may be empty."""
    names = list(known)
    found = difflib.get_close_matches(tag, names, n=_SUGGESTIONS, cutoff=0.6)
    if found:
        return found
    # A bare or mistyped cloud still has a recognisable region part: compare those alone.
    wanted = tag.rpartition(":")[2]
    by_name: dict[str, list[str]] = {}
    for known_tag in names:
        by_name.setdefault(known_tag.rpartition(":")[2], []).append(known_tag)
    close = difflib.get_close_matches(wanted, by_name, n=_SUGGESTIONS, cutoff=0.6)
    return [known_tag for name in close for known_tag in by_name[name]][:_SUGGESTIONS]
