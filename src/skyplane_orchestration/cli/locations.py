"""SRC and DST of the command: two region tags, or two URLs or paths."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from skyplane_orchestration.cli import planner_options
from skyplane_orchestration.cli.job_from_options import location_from
from skyplane_orchestration.errors import ConfigurationInvalid, EmptySource, NotFound, UnknownRegion
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import (
    Location,
    did_you_mean,
    is_url_or_path,
    parse_region_tag,
)

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.grids import Grid

Made = TypeVar("Made")

#: Options of a location that region tags do not have.
LOCATION_OPTIONS: Final = ("region", "endpoint", "credentials", "option")


def are_locations(options: argparse.Namespace, regions: Sequence[str]) -> bool:
    """True for two URLs or paths, False for two region tags.

    Raises ConfigurationInvalid for one of each, and for a mistyped tag.
    """
    ends = (options.src, options.dst)
    locations = [end for end in ends if is_url_or_path(end)]
    if locations:
        _refuse_mistyped_region(locations[0], regions)
    if len(locations) == 1:
        raise ConfigurationInvalid(
            "SRC and DST must be two locations (URLs or paths) or two region tags, such as"
            f" aws:us-east-1; only {locations[0]!r} is a location"
        )
    return bool(locations)


def _refuse_mistyped_region(text: str, regions: Sequence[str]) -> None:
    """Raise UnknownRegion for a word that is similar to a region and is not a path."""
    if "/" in text or text.startswith((".", "~")) or Path(text).exists():
        return
    if ":" in text:
        parse_region_tag(text)
    if hint := did_you_mean(text, regions):
        raise UnknownRegion(f"{text!r} is neither a region tag nor a path{hint}")


def planning_job(options: argparse.Namespace, client: Client) -> TransferJob:
    """The job of a subcommand that plans between two locations. Raises ConfigurationInvalid."""
    return TransferJob(
        source=location_from(options, "src"),
        destination=location_from(options, "dst"),
        objective=planner_options.objective_from(options),
        limits=planner_options.limits_from(options),
        policy=planner_options.policy_from(options, client.grid.tags),
        volume_gb=options.volume_gb,
        objects=options.objects,
    )


def as_prefix_or_object(job: TransferJob, make: Callable[[TransferJob], Made]) -> Made:
    """Try SRC as a prefix; if no object is below it, as one object."""
    try:
        return make(job)
    except EmptySource:
        try:
            return make(replace(job, recursive=False))
        except NotFound:
            pass
        raise


def require_plain_regions(options: argparse.Namespace) -> None:
    """Refuse options of locations, since SRC and DST are region tags."""
    for name in LOCATION_OPTIONS:
        for end in ("src", "dst"):
            if getattr(options, f"{end}_{name}"):
                raise ConfigurationInvalid(f"--{end}-{name} is for URLs, not for region tags")


def between_regions(
    options: argparse.Namespace, client: Client, *further: str
) -> tuple[Grid, dict[str, Any]]:
    """For plans between region tags: the grid with the quotas there, and the other arguments.

    Raises ConfigurationInvalid.
    """
    require_plain_regions(options)
    request = planner_options.request_from(options, client.grid.tags)
    ends = (options.src, options.dst, *further)
    return client.grid_within_quotas(ends, request["policy"]), request


def further_locations(options: argparse.Namespace, urls: Sequence[str]) -> list[Location]:
    """Further destinations, with the options of DST. Raises ConfigurationInvalid."""
    if urls and options.dst_region:
        raise ConfigurationInvalid(
            "--dst-region is for one destination; for several, give region tags, or URLs whose"
            " stores know their region"
        )
    found = [location_from(options, "dst", url) for url in urls]
    kinds = {place.kind for place in (location_from(options, "dst"), *found)} if urls else ()
    for name in LOCATION_OPTIONS if len(kinds) > 1 else ():
        if getattr(options, f"dst_{name}"):
            raise ConfigurationInvalid(f"--dst-{name} is for destinations of one kind of store")
    return found
