"""`SkyplaneJobOperator`: the base of the operators that make a job from their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from skyplane_gateway.config import (
    ArchivedObjectRule,
    ConflictRule,
    IllegalKeyRule,
    Verification,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.delete_limit import DEFAULT_MAX_DELETE
from skyplane_orchestration.model.job import (
    Deadline,
    Encryption,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    NoCapacityRule,
    Objective,
    Policy,
    ServerSideRule,
    TransferJob,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators.base import SkyplaneOperator

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
    bwlimit: str | None
    on_illegal_key: IllegalKeyRule
    on_archived_object: ArchivedObjectRule
    server_side_copy: ServerSideRule
    encrypt: Encryption
    allow_regions: Sequence[str]
    exclude_regions: Sequence[str]
    max_job_usd: Number
    on_no_capacity: NoCapacityRule
    instance_limit: int | None
    vcpu_quota: Mapping[str, int]
    source_read_gbps: Number
    destination_write_gbps: Number
    safety_margin: float
    chunk_mib: int | None


class SkyplaneJobOperator(SkyplaneOperator):
    """Base of the operators that have a job.

    Args:
        job: the whole job, or its `to_dict()`, in place of all other arguments. All its
            texts are templates.
        source_url: `s3://bucket/prefix/`; the key of one object with `recursive=False`.
        source_region: region tag such as `aws:ap-southeast-2`; empty: the store is asked.
        source_endpoint: address of an S3-compatible service.
        source_conn_id: Airflow connection with the credentials, resolved when the task runs;
            None: the worker's own credentials.
        destination_url, destination_region, destination_endpoint, destination_conn_id: the
            same for the destination.
        recursive, include, exclude, conflict, publish_last, verify, allow_empty,
            allow_failed, move, strict_metadata, guess_mime_type, files_from, newer_than,
            older_than, min_size, max_size, delete, max_delete, bwlimit,
            on_illegal_key, on_archived_object, server_side_copy, encrypt: see `TransferJob`. A
            template of a time, size or rate that renders to an empty text means no bound.
        min_throughput_gbps: the cheapest plan at this rate or more.
        exactly: plan at exactly `min_throughput_gbps`, as the paper does.
        max_usd_per_gb, max_cost_usd: the fastest plan for at most this price or cost.
        deadline_s: the cheapest plan that ends within this time. Default of the four: the
            cheapest plan at the rate of the direct path.
        allow_regions, exclude_regions: globs of the regions that may and may not relay.
        max_job_usd: highest total cost. A plan that costs more is refused, and a transfer
            that has cost so much is stopped; the task fails without a retry.
        on_no_capacity: see `Policy`.
        instance_limit, vcpu_quota, source_read_gbps, destination_write_gbps, safety_margin,
            chunk_mib: see `Limits`.
    """

    template_fields: Sequence[str] = (
        *SkyplaneOperator.template_fields,
        "min_throughput_gbps",
        "max_usd_per_gb",
        "max_cost_usd",
        "deadline_s",
        "max_job_usd",
        "on_no_capacity",
        "source_read_gbps",
        "destination_write_gbps",
        "allow_regions",
        "exclude_regions",
        "job",
        "source_url",
        "source_region",
        "source_endpoint",
        "source_conn_id",
        "destination_url",
        "destination_region",
        "destination_endpoint",
        "destination_conn_id",
        "include",
        "exclude",
        "publish_last",
        "files_from",
        "newer_than",
        "older_than",
        "min_size",
        "max_size",
        "max_delete",
        "bwlimit",
        "on_illegal_key",
        "on_archived_object",
        "server_side_copy",
        "encrypt",
        "conflict",
        "verify",
    )
    template_fields_renderers = {"job": "json"}  # noqa: RUF012 - Airflow's own declaration

    def __init__(
        self,
        *,
        job: TransferJob | Mapping[str, Any] | None = None,
        source_url: str | None = None,
        source_region: str = "",
        source_endpoint: str = "",
        source_conn_id: str | None = None,
        destination_url: str | None = None,
        destination_region: str = "",
        destination_endpoint: str = "",
        destination_conn_id: str | None = None,
        min_throughput_gbps: Number = None,
        exactly: bool = False,
        max_usd_per_gb: Number = None,
        max_cost_usd: Number = None,
        deadline_s: Number = None,
        allow_regions: Sequence[str] = (),
        exclude_regions: Sequence[str] = (),
        max_job_usd: Number = None,
        on_no_capacity: NoCapacityRule = "replan",
        instance_limit: int | None = None,
        vcpu_quota: Mapping[str, int] | None = None,
        source_read_gbps: Number = None,
        destination_write_gbps: Number = None,
        safety_margin: float = 0.0,
        chunk_mib: int | None = None,
        recursive: bool = True,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        conflict: ConflictRule = "replace",
        publish_last: Sequence[str] = (),
        verify: Verification = "stored",
        allow_empty: bool = False,
        allow_failed: bool = False,
        move: bool = False,
        strict_metadata: bool = False,
        guess_mime_type: bool = True,
        files_from: Sequence[str] | None = None,
        newer_than: str | None = None,
        older_than: str | None = None,
        min_size: str | None = None,
        max_size: str | None = None,
        delete: bool = False,
        max_delete: str = DEFAULT_MAX_DELETE,
        bwlimit: str | None = None,
        on_illegal_key: IllegalKeyRule = "fail",
        on_archived_object: ArchivedObjectRule = "fail",
        server_side_copy: ServerSideRule = "auto",
        encrypt: Encryption = "auto",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.source_url = source_url
        self.source_region = source_region
        self.source_endpoint = source_endpoint
        self.source_conn_id = source_conn_id
        self.destination_url = destination_url
        self.destination_region = destination_region
        self.destination_endpoint = destination_endpoint
        self.destination_conn_id = destination_conn_id
        self.recursive = recursive
        self.include = include
        self.exclude = exclude
        self.conflict = conflict
        self.publish_last = publish_last
        self.verify = verify
        self.allow_empty = allow_empty
        self.allow_failed = allow_failed
        self.move = move
        self.strict_metadata = strict_metadata
        self.guess_mime_type = guess_mime_type
        self.files_from = files_from
        self.newer_than = newer_than
        self.older_than = older_than
        self.min_size = min_size
        self.max_size = max_size
        self.delete = delete
        self.max_delete = max_delete
        self.bwlimit = bwlimit
        self.on_illegal_key = on_illegal_key
        self.on_archived_object = on_archived_object
        self.server_side_copy = server_side_copy
        self.encrypt = encrypt
        self.min_throughput_gbps = min_throughput_gbps
        self.exactly = exactly
        self.max_usd_per_gb = max_usd_per_gb
        self.max_cost_usd = max_cost_usd
        self.deadline_s = deadline_s
        self.allow_regions = allow_regions
        self.exclude_regions = exclude_regions
        self.max_job_usd = max_job_usd
        self.on_no_capacity = on_no_capacity
        self.instance_limit = instance_limit
        self.vcpu_quota = dict(vcpu_quota or {})
        self.source_read_gbps = source_read_gbps
        self.destination_write_gbps = destination_write_gbps
        self.safety_margin = safety_margin
        self.chunk_mib = chunk_mib

    def transfer_job(self) -> TransferJob:
        """The job that the rendered arguments describe. Raises ConfigurationInvalid."""
        if self.job is not None:
            if self.source_url or self.destination_url:
                raise ConfigurationInvalid("give either job or source_url and destination_url")
            job = self.job
            return job if isinstance(job, TransferJob) else TransferJob.from_dict(job)
        return TransferJob(
            source=self._location("source"),
            destination=self._location("destination"),
            objective=self.objective(),
            recursive=self.recursive,
            include=texts(self.include),
            exclude=texts(self.exclude),
            conflict=self.conflict,
            publish_last=texts(self.publish_last),
            verify=self.verify,
            allow_empty=self.allow_empty,
            allow_failed=self.allow_failed,
            move=self.move,
            strict_metadata=self.strict_metadata,
            guess_mime_type=self.guess_mime_type,
            files_from=None if self.files_from is None else texts(self.files_from),
            newer_than=self.newer_than or None,
            older_than=self.older_than or None,
            min_size=self.min_size or None,
            max_size=self.max_size or None,
            delete=self.delete,
            max_delete=self.max_delete,
            bwlimit=self.bwlimit or None,
            on_illegal_key=self.on_illegal_key,
            on_archived_object=self.on_archived_object,
            server_side_copy=self.server_side_copy,
            encrypt=self.encrypt,
            limits=self.limits(),
            policy=self.policy(),
        )

    def _location(self, side: str) -> Location:
        from skyplane_orchestration.hooks.skyplane import credential_ref

        url = getattr(self, f"{side}_url")
        if not url:
            raise ConfigurationInvalid(f"{side}_url is missing; give it, or a whole job")
        return Location(
            url=url,
            region=getattr(self, f"{side}_region"),
            endpoint_url=getattr(self, f"{side}_endpoint"),
            credential_ref=credential_ref(getattr(self, f"{side}_conn_id")),
        )

    def objective(self) -> Objective | None:
        """The objective; None for the default. Raises ConfigurationInvalid."""
        floor = self._number("min_throughput_gbps")
        per_gb = self._number("max_usd_per_gb")
        cost = self._number("max_cost_usd")
        seconds = self._number("deadline_s")
        if sum(value is not None for value in (floor, per_gb, cost, seconds)) > 1:
            raise ConfigurationInvalid(
                "give one objective: min_throughput_gbps, max_usd_per_gb, max_cost_usd or "
                "deadline_s"
            )
        if floor is not None:
            return MinimizeCost(floor, exactly=self.exactly)
        if seconds is not None:
            return Deadline(seconds)
        if per_gb is not None or cost is not None:
            return MaximizeThroughput(max_usd_per_gb=per_gb, max_cost_usd=cost)
        return None

    def limits(self) -> Limits:
        return Limits(
            instance_limit=self.instance_limit,
            chunk_mib=self.chunk_mib,
            vcpu_quota=self.vcpu_quota,
            source_read_gbps=self._number("source_read_gbps"),
            destination_write_gbps=self._number("destination_write_gbps"),
            safety_margin=self.safety_margin,
        )

    def policy(self) -> Policy:
        return Policy(
            texts(self.allow_regions),
            texts(self.exclude_regions),
            self._number("max_job_usd"),
            self.on_no_capacity,
        )

    def _number(self, name: str) -> float | None:
        """An argument that a template may have rendered; an empty text means None."""
        value: Number = getattr(self, name)
        if value is None or value == "":
            return None
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ConfigurationInvalid(f"{name} is not a number: {value!r}") from None


def texts(values: Sequence[str]) -> tuple[str, ...]:
    """Several texts, or one that a template has rendered."""
    return (values,) if isinstance(values, str) else tuple(values)
