"""SRC and DST of the command: region tags, URLs and jobs from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    EmptySource,
    NotFound,
    UnknownRegion,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import is_url_or_path, nearest_names, parse_region_tag

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client


Answer = TypeVar("Answer")


def are_places(options: argparse.Namespace, regions: Sequence[str]) -> bool:
    """True for two URLs or paths, False for two region tags.

    Raises ConfigurationInvalid for one of each, and for a word that must be a mistyped tag.
    """
    ends = (options.src, options.dst)
    places = [is_url_or_path(end) for end in ends]
    if all(places):
        _refuse_mistyped_region(options.src, regions)
        return True
    for end, is_place in zip(ends, places, strict=True):
        if is_place:
            _refuse_mistyped_region(end, regions)
            raise ConfigurationInvalid(
                "SRC and DST must be two places (URLs, paths) or two region tags, such as"
                f" aws:us-east-1; {end!r} is a place"
            )
    return False


def _refuse_mistyped_region(text: str, regions: Sequence[str]) -> None:
    """Raise InvalidLocation for a word that is no path here and looks like a region."""
    if "/" in text or text.startswith((".", "~")) or Path(text).exists():
        return
    if ":" in text:
        parse_region_tag(text)
    near = nearest_names(text, regions)
    if near:
        raise UnknownRegion(
            f"{text!r} is no region tag, and no path here; did you mean {' or '.join(near)}?"
        )


def job_from(options: argparse.Namespace, client: Client) -> TransferJob:
    """The job of a verb that plans between two places. Raises ConfigurationInvalid."""
    return TransferJob(
        source=arguments.location_from(options, "src"),
        destination=arguments.location_from(options, "dst"),
        objective=planner_options.objective_from(options),
        limits=planner_options.limits_from(options),
        policy=planner_options.policy_from(options, client.grid.tags),
        volume_gb=options.volume_gb,
        objects=options.objects,
    )


def as_object_or_prefix(job: TransferJob, ask: Callable[[TransferJob], Answer]) -> Answer:
    """What is below SRC, or SRC as an object itself where nothing lies below it."""
    try:
        return ask(job)
    except EmptySource:
        try:
            return ask(replace(job, recursive=False))
        except NotFound:
            pass
        raise


def require_plain_regions(options: argparse.Namespace) -> None:
    """Refuse, for two region tags, what completes a URL."""
    for name in ("region", "endpoint", "credentials", "option"):
        for end in ("src", "dst"):
            if getattr(options, f"{end}_{name}"):
                raise ConfigurationInvalid(f"--{end}-{name} belongs to a URL, not to a region tag")
