"""Names of regions that the shipped grid knows, for checks before a grid is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache

from skyplane_gateway.common.wording import FieldName
from skyplane_orchestration.errors import ConfigurationInvalid, UnknownRegion
from skyplane_orchestration.model.location import LOCAL_CLOUD, did_you_mean, parse_region_tag


@cache
def shipped_tags() -> tuple[str, ...]:
    # Imported here: most runs name no region.
    from skyplane_orchestration.grids.rows import Findings, read_rows
    from skyplane_orchestration.grids.tables import shipped_files

    rows = read_rows(shipped_files(), "regions.csv", ("region",), Findings())
    return tuple(row["region"] for row in rows)


def require_tag(name: str, tag: str) -> None:
    """Raise UnknownRegion for a region that no cloud is known to have.

    Args:
        name: the argument, for the message.
    """
    if not parse_region_tag(tag).is_local and tag.strip() not in shipped_tags():
        hint = did_you_mean(tag, shipped_tags())
        raise UnknownRegion(f"{name} {tag!r} is no region of the shipped grid{hint}")


def require_glob(name: str, glob: str, tags: Sequence[str] = ()) -> None:
    """Raise ConfigurationInvalid for a glob that matches no region: it protects nothing.

    One of a region that only the shipped grid has is right: a team's policy may serve many grids.

    Args:
        tags: of the grid; without them any place outside of clouds may be in it.
    """
    is_own = not tags and glob.startswith(f"{LOCAL_CLOUD}:")
    if not is_own and not any(fnmatchcase(tag, glob) for tag in (*tags, *shipped_tags())):
        raise ConfigurationInvalid.about(
            "{field} {glob!r} matches no region of the grid{hint} (to skip objects, use {exclude})",
            field=FieldName(name),
            glob=glob,
            hint=did_you_mean(glob, tags or shipped_tags()) or "; give region tags",
        )
