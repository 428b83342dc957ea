"""`SkyplaneJobOperator`: the base of the operators that make a job from their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skyplane_gateway.config import (
    ArchivedObjectRule,
    ConflictRule,
    IllegalKeyRule,
    Verification,
)
from skyplane_orchestration.model.delete_limit import DEFAULT_MAX_DELETE
from skyplane_orchestration.model.job import (
    Encryption,
    NetworkTierRule,
    NoCapacityRule,
    ServerSideRule,
    TransferJob,
)
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.operators.job_arguments import Number, check_known, job_of, urls_of
from skyplane_orchestration.operators.map_label import MAP_INDEX_TEMPLATE, label_of


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
            older_than, min_size, max_size, delete, max_delete, allow_unmatched_patterns,
            bwlimit, on_illegal_key, on_archived_object, server_side_copy, encrypt: see
            `TransferJob`. A template of a time, size or rate that renders to an empty text
            means no bound.
        min_throughput_gbps: the cheapest plan at this rate or more.
        exactly: plan at exactly `min_throughput_gbps`, as the paper does.
        max_usd_per_gb, max_cost_usd: the fastest plan for at most this price or cost.
        deadline_s: the cheapest plan that ends within this time. Default of the four: the
            cheapest plan at the rate of the direct path.
        allow_regions, exclude_regions: globs of the regions that may and may not relay.
        max_job_usd: highest total cost. A plan that costs more is refused, and a transfer
            that has cost so much is stopped; the task fails without a retry.
        on_no_capacity, network_tier: see `Policy`.
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
        "network_tier",
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
    default_map_index_template = MAP_INDEX_TEMPLATE

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
        network_tier: NetworkTierRule = "premium",
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
        allow_unmatched_patterns: bool = False,
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
        self.allow_unmatched_patterns = allow_unmatched_patterns
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
        self.network_tier = network_tier
        self.instance_limit = instance_limit
        self.vcpu_quota = dict(vcpu_quota or {})
        self.source_read_gbps = source_read_gbps
        self.destination_write_gbps = destination_write_gbps
        self.safety_margin = safety_margin
        self.chunk_mib = chunk_mib
        check_known(self)

    @property
    def map_label(self) -> str:
        """Both ends, for the label of a mapped task."""
        return label_of(*urls_of(vars(self)))

    def transfer_job(self) -> TransferJob:
        """The job that the rendered arguments describe. Raises ConfigurationInvalid."""
        return job_of(self)
