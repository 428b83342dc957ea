"""`SkyplaneJobOperator`: the base of the operators that make a job from their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from skyplane_gateway.config import ConflictRule, Verification
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators.planning import Number, SkyplanePlanningOperator, texts


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
    allow_regions: Sequence[str]
    exclude_regions: Sequence[str]
    max_job_usd: Number
    instance_limit: int | None
    vcpu_quota: Mapping[str, int]
    source_read_gbps: Number
    destination_write_gbps: Number
    safety_margin: float
    chunk_mib: int


class SkyplaneJobOperator(SkyplanePlanningOperator):
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
            allow_failed, move, strict_metadata, guess_mime_type: see `TransferJob`.
        kwargs: see `SkyplanePlanningOperator`.
    """

    template_fields: Sequence[str] = (
        *SkyplanePlanningOperator.template_fields,
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
