"""The arguments that make a job, and the job that they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.credential_refs import credential_ref
from skyplane_orchestration.model.flat_job import flat_fields, flat_job
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.operators.arguments import is_known, or_template


def _found() -> dict[str, tuple[Any, Any]]:
    """Argument -> its type, as a value or a template of one, and its default."""
    flat = {name: one for name, one in flat_fields().items() if name not in _NOT_GIVEN}
    found = {name: (or_template(*one), one[1]) for name, one in flat.items()}
    found |= {f"{end}_conn_id": (str | None, None) for end in ("source", "destination")}
    return {"job": (TransferJob | Mapping[str, Any] | str | None, None), **found}


#: What an operator has no argument for; a whole `job` has them. Credentials are connections here.
_NOT_GIVEN: Final = frozenset(
    {
        *("source_credential_ref", "destination_credential_ref"),
        *("volume_gb", "objects", "max_relays", "instance_types"),
    }
)

#: Argument of `SkyplaneJobOperator` that makes its job -> its type; and its default, the job's.
TYPES: Final = {name: hint for name, (hint, _) in _found().items()}
DEFAULTS: Final = {name: default for name, (_, default) in _found().items()}


def job_of(given: Mapping[str, Any]) -> TransferJob:
    """The job that typed arguments describe, by their names. Raises ConfigurationInvalid."""
    job = given.get("job")
    if job is not None:
        if given.get("source_url") or given.get("destination_url"):
            raise ConfigurationInvalid("give either job or source_url and destination_url")
        return job if isinstance(job, TransferJob) else TransferJob.from_dict(job)
    values = {name: given[name] for name in DEFAULTS if name in given}
    for end in ("source", "destination"):
        reference = credential_ref(values.pop(f"{end}_conn_id", None))
        values[f"{end}_credential_ref"] = reference
    return flat_job({**values, "job": None})


def ends_of(arguments: Mapping[str, Any]) -> str:
    """Source and destination for people: `SRC to DST`, templates as they stand."""
    source, destination = urls_of(arguments)
    return f"{source or 'each source'} to {destination or 'its destination'}"


def urls_of(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The URLs of source and destination; empty for one that is not known yet."""
    job = arguments.get("job")
    if isinstance(job, TransferJob):
        return job.source.url, job.destination.url
    if isinstance(job, Mapping):
        places = [job.get(end) for end in ("source", "destination")]
        urls = [place.get("url") if isinstance(place, Mapping) else "" for place in places]
    else:
        urls = [arguments.get("source_url"), arguments.get("destination_url")]
    source, destination = (url if isinstance(url, str) else "" for url in urls)
    return source, destination


def known_part_of(job: object, known: Mapping[str, Any]) -> Mapping[str, Any]:
    """The known arguments, with what is known of a job that has templates."""
    if "job" in known or not isinstance(job, Mapping):
        return known
    part = {name: _known_values(value) for name, value in job.items()}
    # A part of an objective is none.
    part = {name: part[name] for name in part if name != "objective" or is_known(job[name])}
    for name, url in _SOME_ENDS.items():
        end = name.removesuffix("_url")
        if isinstance(part.get(end), Mapping):
            part[end] = {"url": url, **part[end]}
    return {**known, "job": {name: value for name, value in part.items() if value is not None}}


def _known_values(value: Any) -> Any:
    """The value without its entries that have templates; None for a template."""
    if isinstance(value, Mapping):
        return {key: inner for key, one in value.items()
                if (inner := _known_values(one)) is not None}  # fmt: skip
    return value if is_known(value) else None


def _check_regions(known: Mapping[str, Any]) -> None:
    """Check names of regions, as far as the shipped grid can tell.

    Raises UnknownRegion, or ConfigurationInvalid for a glob.
    """
    ends = {name: known.get(name) for name in ("source_region", "destination_region")}
    globs = {name: known.get(name) for name in ("allow_regions", "exclude_regions")}
    if not any((*ends.values(), *globs.values())):
        return
    # Imported here: most jobs name no region.
    from skyplane_orchestration.grids.names import require_glob, require_tag

    for name, tag in ends.items():
        if tag:
            require_tag(name, tag)
    for name, patterns in globs.items():
        for glob in patterns or ():
            require_glob(name, glob)


def check_known(known: Mapping[str, Any], *, needs_ends: bool) -> None:
    """Check together the arguments that are known when a DAG is parsed.

    Args:
        needs_ends: both ends are given, by their URLs or in a job.

    Raises ConfigurationInvalid with the name of the argument.
    """
    given = {name: value for name, value in known.items() if value is not None}
    is_open = not needs_ends or "job" not in known
    ends = {name: url for name, url in _SOME_ENDS.items() if is_open or name not in known}
    job_of(given if "job" in given else {**ends, **given})
    _check_regions(known)


#: A place that any job may have.
_SOME_ENDS: Final = {"source_url": "s3://source/", "destination_url": "s3://destination/"}
