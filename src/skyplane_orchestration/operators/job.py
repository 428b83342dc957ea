"""The arguments that say what is to be moved, and the job that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from skyplane_gateway.config import ConflictRule, Verification
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
    TransferJob,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators.base import SkyplaneOperator

#: A figure, or the template that will give it.
Number = float | str | None


class JobArguments(TypedDict, total=False):
    """The keyword arguments of `SkyplaneJobOperator` that make its job."""

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
    allow_regions: Sequence[str]
    exclude_regions: Sequence[str]
    max_job_usd: Number
    instance_limit: int | None
    vcpu_quota: Mapping[str, int]
    source_read_gbps: Number
    destination_write_gbps: Number
    safety_margin: float
    chunk_mib: int


class SkyplaneJobOperator(SkyplaneOperator):
    """Base of the operators that know what is to be moved.

    Args:
        job: the whole job, or its `to_dict()`; all other arguments are left out then. Every
            text in it is a template.
        source_url: `s3://bucket/prefix/`; one object's key with `recursive=False`.
        source_region: region tag such as `aws:ap-southeast-2`; asked of the store when empty.
        source_endpoint: address of an S3-compatible service.
        source_conn_id: Airflow connection with the credentials, resolved when the task runs;
            the worker's own when None.
        destination_url, destination_region, destination_endpoint, destination_conn_id: the
            same of the destination.
        min_throughput_gbps: the cheapest plan of at least so many Gbit/s.
        exactly: plan at that rate itself, as the paper does.
        max_usd_per_gb, max_cost_usd: the fastest plan for at most so much.
        deadline_s: the cheapest plan that is done in so many seconds. Without any of these
            objectives: the cheapest plan at the rate of the direct path.
        recursive, include, exclude, conflict, publish_last, verify, allow_empty,
            allow_failed, move, strict_metadata, guess_mime_type: see `TransferJob`.
        allow_regions, exclude_regions: globs of regions that may and may not carry bytes.
        max_job_usd: the plan of a job that costs more in all is refused, and a transfer that
            has cost so much is stopped; the task fails for good.
        instance_limit, vcpu_quota, source_read_gbps, destination_write_gbps, safety_margin,
            chunk_mib: see `Limits`.
    """

    template_fields: Sequence[str] = (
        *SkyplaneOperator.template_fields,
        "job",
        "source_url",
        "source_region",
        "source_endpoint",
        "source_conn_id",
        "destination_url",
        "destination_region",
        "destination_endpoint",
        "destination_conn_id",
        "min_throughput_gbps",
        "max_usd_per_gb",
        "max_cost_usd",
        "deadline_s",
        "max_job_usd",
        "source_read_gbps",
        "destination_write_gbps",
        "include",
        "exclude",
        "publish_last",
        "conflict",
        "verify",
        "allow_regions",
        "exclude_regions",
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
        allow_regions: Sequence[str] = (),
        exclude_regions: Sequence[str] = (),
        max_job_usd: Number = None,
        instance_limit: int | None = None,
        vcpu_quota: Mapping[str, int] | None = None,
        source_read_gbps: Number = None,
        destination_write_gbps: Number = None,
        safety_margin: float = 0.0,
        chunk_mib: int = 16,
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
        self.min_throughput_gbps = min_throughput_gbps
        self.exactly = exactly
        self.max_usd_per_gb = max_usd_per_gb
        self.max_cost_usd = max_cost_usd
        self.deadline_s = deadline_s
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
        self.allow_regions = allow_regions
        self.exclude_regions = exclude_regions
        self.max_job_usd = max_job_usd
        self.instance_limit = instance_limit
        self.vcpu_quota = dict(vcpu_quota or {})
        self.source_read_gbps = source_read_gbps
        self.destination_write_gbps = destination_write_gbps
        self.safety_margin = safety_margin
        self.chunk_mib = chunk_mib

    def transfer_job(self) -> TransferJob:
        """The job that the rendered arguments describe.

        Raises:
            ConfigurationInvalid: they contradict each other or cannot be used.
        """
        if self.job is not None:
            if self.source_url or self.destination_url:
                raise ConfigurationInvalid("give either job or source_url and destination_url")
            job = self.job
            return job if isinstance(job, TransferJob) else TransferJob.from_dict(job)
        return TransferJob(
            source=self._end("source"),
            destination=self._end("destination"),
            objective=self._objective(),
            recursive=self.recursive,
            include=_texts(self.include),
            exclude=_texts(self.exclude),
            conflict=self.conflict,
            publish_last=_texts(self.publish_last),
            verify=self.verify,
            allow_empty=self.allow_empty,
            allow_failed=self.allow_failed,
            move=self.move,
            strict_metadata=self.strict_metadata,
            guess_mime_type=self.guess_mime_type,
            limits=Limits(
                instance_limit=self.instance_limit,
                chunk_mib=self.chunk_mib,
                vcpu_quota=self.vcpu_quota,
                source_read_gbps=_number("source_read_gbps", self.source_read_gbps),
                destination_write_gbps=_number(
                    "destination_write_gbps", self.destination_write_gbps
                ),
                safety_margin=self.safety_margin,
            ),
            policy=Policy(
                _texts(self.allow_regions),
                _texts(self.exclude_regions),
                _number("max_job_usd", self.max_job_usd),
            ),
        )

    def _end(self, side: str) -> Location:
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

    def _objective(self) -> Objective | None:
        floor = _number("min_throughput_gbps", self.min_throughput_gbps)
        per_gb = _number("max_usd_per_gb", self.max_usd_per_gb)
        cost = _number("max_cost_usd", self.max_cost_usd)
        seconds = _number("deadline_s", self.deadline_s)
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


def _number(name: str, value: Number) -> float | None:
    """A rendered template is text; an empty one means that nothing was asked for."""
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigurationInvalid(f"{name} is not a number: {value!r}") from None


def _texts(values: Sequence[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)
