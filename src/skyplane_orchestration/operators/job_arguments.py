"""The arguments that make a job, and the job that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, TypedDict

from skyplane_gateway.config import (
    ArchivedObjectRule,
    ConflictRule,
    IllegalKeyRule,
    Verification,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.credential_refs import credential_ref
from skyplane_orchestration.model.delete_limit import DEFAULT_MAX_DELETE
from skyplane_orchestration.model.job import (
    Encryption,
    Limits,
    NetworkTierRule,
    NoCapacityRule,
    Objective,
    Policy,
    ServerSideRule,
    TransferJob,
)
from skyplane_orchestration.model.location import Location, holds_template
from skyplane_orchestration.model.objective_choice import chosen_objective

#: A number, or a template that renders to one.
Number = float | str | None


class JobArguments(TypedDict, total=False):
    """Keyword arguments of `SkyplaneJobOperator` that make its job."""

    job: TransferJob | Mapping[str, Any] | None
    source_url: str | None
    source_region: str
    source_endpoint: str
    source_conn_id: str | None
    destination_url: str | None
    destination_region: str
    destination_endpoint: str
    destination_conn_id: str | None
    min_throughput_gbps: Number
    exactly: bool
    max_usd_per_gb: Number
    max_cost_usd: Number
    deadline_s: Number
    recursive: bool
    include: Sequence[str]
    exclude: Sequence[str]
    conflict: ConflictRule
    publish_last: Sequence[str]
    verify: Verification
    allow_empty: bool
    allow_failed: bool
    move: bool
    strict_metadata: bool
    guess_mime_type: bool
    files_from: Sequence[str] | None
    newer_than: str | None
    older_than: str | None
    min_size: str | None
    max_size: str | None
    delete: bool
    max_delete: str
    allow_unmatched_patterns: bool
    bwlimit: str | None
    on_illegal_key: IllegalKeyRule
    on_archived_object: ArchivedObjectRule
    server_side_copy: ServerSideRule
    encrypt: Encryption
    allow_regions: Sequence[str]
    exclude_regions: Sequence[str]
    max_job_usd: Number
    on_no_capacity: NoCapacityRule
    network_tier: NetworkTierRule
    instance_limit: int | None
    vcpu_quota: Mapping[str, int]
    source_read_gbps: Number
    destination_write_gbps: Number
    safety_margin: float
    chunk_mib: int | None


#: Values of arguments that are not given.
DEFAULTS: Final[JobArguments] = {
    "job": None,
    "source_url": None,
    "source_region": "",
    "source_endpoint": "",
    "source_conn_id": None,
    "destination_url": None,
    "destination_region": "",
    "destination_endpoint": "",
    "destination_conn_id": None,
    "min_throughput_gbps": None,
    "exactly": False,
    "max_usd_per_gb": None,
    "max_cost_usd": None,
    "deadline_s": None,
    "recursive": True,
    "include": (),
    "exclude": (),
    "conflict": "replace",
    "publish_last": (),
    "verify": "stored",
    "allow_empty": False,
    "allow_failed": False,
    "move": False,
    "strict_metadata": False,
    "guess_mime_type": True,
    "files_from": None,
    "newer_than": None,
    "older_than": None,
    "min_size": None,
    "max_size": None,
    "delete": False,
    "max_delete": DEFAULT_MAX_DELETE,
    "allow_unmatched_patterns": False,
    "bwlimit": None,
    "on_illegal_key": "fail",
    "on_archived_object": "fail",
    "server_side_copy": "auto",
    "encrypt": "auto",
    "allow_regions": (),
    "exclude_regions": (),
    "max_job_usd": None,
    "on_no_capacity": "replan",
    "network_tier": "premium",
    "instance_limit": None,
    "vcpu_quota": {},
    "source_read_gbps": None,
    "destination_write_gbps": None,
    "safety_margin": 0.0,
    "chunk_mib": None,
}


def job_of(arguments: Any) -> TransferJob:
    """The job that rendered arguments describe; an object with an attribute for each.

    Raises ConfigurationInvalid.
    """
    if arguments.job is not None:
        if arguments.source_url or arguments.destination_url:
            raise ConfigurationInvalid("give either job or source_url and destination_url")
        job = arguments.job
        return job if isinstance(job, TransferJob) else TransferJob.from_dict(job)
    return TransferJob(
        source=_location(arguments, "source"),
        destination=_location(arguments, "destination"),
        objective=_objective(arguments),
        recursive=arguments.recursive,
        include=texts(arguments.include),
        exclude=texts(arguments.exclude),
        conflict=arguments.conflict,
        publish_last=texts(arguments.publish_last),
        verify=arguments.verify,
        allow_empty=arguments.allow_empty,
        allow_failed=arguments.allow_failed,
        move=arguments.move,
        strict_metadata=arguments.strict_metadata,
        guess_mime_type=arguments.guess_mime_type,
        files_from=None if arguments.files_from is None else texts(arguments.files_from),
        newer_than=arguments.newer_than or None,
        older_than=arguments.older_than or None,
        min_size=arguments.min_size or None,
        max_size=arguments.max_size or None,
        delete=arguments.delete,
        max_delete=arguments.max_delete,
        allow_unmatched_patterns=arguments.allow_unmatched_patterns,
        bwlimit=arguments.bwlimit or None,
        on_illegal_key=arguments.on_illegal_key,
        on_archived_object=arguments.on_archived_object,
        server_side_copy=arguments.server_side_copy,
        encrypt=arguments.encrypt,
        limits=_limits(arguments),
        policy=_policy(arguments),
    )


def ends_of(arguments: JobArguments) -> str:
    """Source and destination for people: `SRC to DST`, templates as they stand."""
    source, destination = urls_of(arguments)
    return f"{source or 'each source'} to {destination or 'its destination'}"


def urls_of(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The URLs of source and destination; empty for one that is not known yet."""
    job = arguments.get("job")
    if isinstance(job, TransferJob):
        return job.source.url, job.destination.url
    source: object
    destination: object
    if isinstance(job, Mapping):
        source, destination = (_url_of(job.get(end)) for end in ("source", "destination"))
    else:
        source, destination = arguments.get("source_url"), arguments.get("destination_url")
    return (
        source if isinstance(source, str) else "",
        destination if isinstance(destination, str) else "",
    )


def _url_of(location: object) -> object:
    return location.get("url") if isinstance(location, Mapping) else None


def _location(arguments: Any, side: str) -> Location:
    url = getattr(arguments, f"{side}_url")
    if not url:
        raise ConfigurationInvalid(f"{side}_url is missing; give it, or a whole job")
    return Location(
        url=url,
        region=getattr(arguments, f"{side}_region"),
        endpoint_url=getattr(arguments, f"{side}_endpoint"),
        credential_ref=credential_ref(getattr(arguments, f"{side}_conn_id")),
    )


def _objective(arguments: Any) -> Objective | None:
    """The objective; None for the default. Raises ConfigurationInvalid."""
    return chosen_objective(
        min_throughput_gbps=_number(arguments, "min_throughput_gbps"),
        exactly=arguments.exactly,
        max_usd_per_gb=_number(arguments, "max_usd_per_gb"),
        max_cost_usd=_number(arguments, "max_cost_usd"),
        deadline_s=_number(arguments, "deadline_s"),
    )


def _limits(arguments: Any) -> Limits:
    return Limits(
        instance_limit=arguments.instance_limit,
        chunk_mib=arguments.chunk_mib,
        vcpu_quota=arguments.vcpu_quota,
        source_read_gbps=_number(arguments, "source_read_gbps"),
        destination_write_gbps=_number(arguments, "destination_write_gbps"),
        safety_margin=arguments.safety_margin,
    )


def _policy(arguments: Any) -> Policy:
    return Policy(
        texts(arguments.allow_regions),
        texts(arguments.exclude_regions),
        _number(arguments, "max_job_usd"),
        arguments.on_no_capacity,
        arguments.network_tier,
    )


def _number(arguments: Any, name: str) -> float | None:
    """An argument that a template may have rendered; an empty text means None."""
    value: Number = getattr(arguments, name)
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigurationInvalid(f"{name} is not a number: {value!r}") from None


def texts(values: Sequence[str]) -> tuple[str, ...]:
    """Several texts, or one that a template has rendered."""
    return (values,) if isinstance(values, str) else tuple(values)


def check_known(arguments: Any) -> None:
    """Check what is known when a DAG is parsed: no templates, no outputs of other tasks.

    Raises ConfigurationInvalid with the name of the argument.
    """
    known = {name: getattr(arguments, name) for name in DEFAULTS}
    known = {name: value for name, value in known.items() if _is_known(value)}
    try:
        _job_from(known)
    except ConfigurationInvalid as error:
        names = [name for name in known if _is_wrong_alone(name, known[name])]
        if not names or any(name in str(error) for name in names):
            raise
        raise ConfigurationInvalid(f"{', '.join(names)}: {error}") from error


def _is_known(value: object) -> bool:
    if isinstance(value, str):
        return not holds_template(value)
    if isinstance(value, Mapping):
        return all(_is_known(inner) for inner in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return all(_is_known(inner) for inner in value)
    return value is None or isinstance(value, bool | int | float | TransferJob)


#: A place that any job may have.
_SOME_ENDS: Final = {"source_url": "s3://source/", "destination_url": "s3://destination/"}


def _job_from(known: Mapping[str, Any]) -> None:
    ends = {} if known.get("job") is not None else _SOME_ENDS
    given = {name: value for name, value in known.items() if value is not None}
    job_of(SimpleNamespace(**{**DEFAULTS, **ends, **given}))


def _is_wrong_alone(name: str, value: object) -> bool:
    try:
        _job_from({name: value})
    except ConfigurationInvalid:
        return True
    return False
