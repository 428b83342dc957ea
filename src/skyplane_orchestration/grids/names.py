"""Names of regions that the shipped grid knows, for checks before a grid is chosen."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid, UnknownRegion
from skyplane_orchestration.grids.rows import Findings, read_rows
from skyplane_orchestration.grids.tables import shipped_files
from skyplane_orchestration.model.location import LOCAL_CLOUD, nearest_names, parse_region_tag

#: Places outside of clouds have names of their own.
_OWN: Final = f"{LOCAL_CLOUD}:"


@cache
def shipped_tags() -> tuple[str, ...]:
    rows = read_rows(shipped_files(), "regions.csv", ("region",), Findings())
    return tuple(row["region"] for row in rows)


def require_tag(name: str, tag: str) -> None:
    """Raise UnknownRegion for a region that no cloud is known to have.

    Args:
        name: the argument, for the message.
    """
    if not parse_region_tag(tag).is_local and tag.strip() not in shipped_tags():
        raise UnknownRegion(f"{name} {tag!r} is no region of the shipped grid{_hint(tag)}")


def require_glob(name: str, glob: str) -> None:
    """Raise ConfigurationInvalid for a glob that matches no region; it protects nothing."""
    is_known = glob.startswith(_OWN) or any(fnmatchcase(tag, glob) for tag in shipped_tags())
    if not is_known:
        raise ConfigurationInvalid(f"{name} {glob!r} matches no region of the grid{_hint(glob)}")


def _hint(text: str) -> str:
    near = nearest_names(text, shipped_tags())
    return f"; did you mean {' or '.join(near)}?" if near else ""
