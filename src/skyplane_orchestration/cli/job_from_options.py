"""Locations and jobs made from the options of a command, and a check before gateways start."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from skyplane_gateway.common.wording import FieldName, Text
from skyplane_orchestration.cli.arguments import END_NAMES
from skyplane_orchestration.errors import ConfigurationInvalid, InvalidLocation
from skyplane_orchestration.model.flat_job import location_of
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location, named_location

#: Options of stores that have an effect at the other end only.
_OF_OTHER_END: Final = {
    "src": ("acl", "non-ascii", "sse", "sse-kms-key-id", "storage-class"),
    "dst": ("tags",),
}

#: Begins of references to credentials that a command can resolve.
_REFERENCES: Final = ("profile:", "env:")


def location_from(options: argparse.Namespace, end: str, url: str | None = None) -> Location:
    """The location of an end (src, dst), or of `url` with that end's options.

    Raises InvalidLocation, also for an option that has no effect at this end.
    """
    given = {
        "url": getattr(options, end) if url is None else url,
        "region": getattr(options, f"{end}_region"),
        "endpoint_url": getattr(options, f"{end}_endpoint"),
        "credential_ref": getattr(options, f"{end}_credentials"),
        "options": dict(getattr(options, f"{end}_option")),
    }
    reference = given["credential_ref"]
    if reference and not reference.startswith(_REFERENCES):
        raise InvalidLocation(
            f"--{end}-credentials must be {' or '.join(f'{one}NAME' for one in _REFERENCES)}, not"
            f" {reference!r}"
        )
    if url is not None:
        return named_location(given, {"url": "destination", "endpoint_url": f"{end}_endpoint"})
    place = location_of(END_NAMES[end], given)
    useless = {"endpoint": place.endpoint_url, "credentials": place.credential_ref}
    names = [name for name, value in useless.items() if value and place.kind == "file"]
    names += [f"option {name}" for name in place.options if name in _OF_OTHER_END[end]]
    if names:
        raise InvalidLocation(
            f"--{end}-{names[0]} has no effect for {place.url!r}; omit it, or give it for the other"
            " end"
        )
    return place


def fields_from(kind: type[Any], options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a dataclass that an option of the same name gives."""
    given = {one.name: getattr(options, one.name, None) for one in fields(kind)}
    return {name: value for name, value in given.items() if value is not None}


def job_from(options: argparse.Namespace, **more: Any) -> TransferJob:
    """The job of a subcommand that copies, with more of its fields. Raises ConfigurationInvalid."""
    given = fields_from(TransferJob, options)
    given.pop("objective", None)  # The option is a word of `chosen_objective`.
    for name in ("max_delete", "allow_unmatched_patterns"):
        if given.get(name) and not given["delete"]:
            raise ConfigurationInvalid(Text(FieldName(name), " needs ", FieldName("delete")))
    given |= {
        "source": location_from(options, "src"),
        "destination": location_from(options, "dst"),
        "limits": Limits(chunk_mib=options.chunk_mib),
        "headers": dict(options.headers),
        "object_metadata": dict(options.object_metadata),
    }
    return TransferJob(**{**given, **more})


def optional_job_from(options: argparse.Namespace) -> TransferJob | None:
    """The job of SRC and DST, as `cp` has it; None without both. Raises ConfigurationInvalid."""
    from skyplane_orchestration.storage.preflight import require_usable

    if (options.src is None) != (options.dst is None):
        raise ConfigurationInvalid("give both SRC and DST, or none of them")
    if options.src is None:
        return None
    ends = location_from(options, "src"), location_from(options, "dst")
    job = TransferJob(*ends, recursive=options.recursive)
    require_usable(job)
    return job


def require_writable(job: TransferJob) -> None:
    """Check that this user can write to a destination of files. Raises InvalidLocation."""
    if job.destination.kind != "file":
        return
    # The command's gateways run on this machine as this user.
    key = "/" + job.destination.key
    is_folder = job.recursive or key.endswith("/")
    target = directory = Path(key) if is_folder else Path(key).parent
    # A copy makes the missing ones.
    while not os.path.lexists(directory):
        directory = directory.parent
    if not directory.is_dir():
        raise InvalidLocation(f"{target} cannot be written: {directory} is not a directory")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InvalidLocation(f"{target} cannot be written: no write permission for {directory}")
