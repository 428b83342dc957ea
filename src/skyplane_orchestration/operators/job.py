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
from skyplane_orchestration.operators.arguments import Count, Flag, Number, Texts, names_of
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.operators.job_arguments import (
    JobArguments,
    check_known,
    job_of,
    urls_of,
)
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

    template_fields_renderers = {"job": "json"}  # noqa: RUF012 - Airflow's own declaration
    default_map_index_template = MAP_INDEX_TEMPLATE
    job: TransferJob | Mapping[str, Any] | None
    source_url: str | None

    def __init__(
        self,
        *,
        job: TransferJob | Mapping[str, Any] | str | None = None,
        source_url: str | None = None,
        source_region: str = "",
        source_endpoint: str = "",
        source_conn_id: str | None = None,
        destination_url: str | None = None,
        destination_region: str = "",
        destination_endpoint: str = "",
        destination_conn_id: str | None = None,
        min_throughput_gbps: Number = None,
        exactly: Flag = False,
        max_usd_per_gb: Number = None,
        max_cost_usd: Number = None,
        deadline_s: Number = None,
        allow_regions: Texts = (),
        exclude_regions: Texts = (),
        max_job_usd: Number = None,
        on_no_capacity: NoCapacityRule = "replan",
        network_tier: NetworkTierRule = "premium",
        instance_limit: Count = None,
        vcpu_quota: Mapping[str, Any] | str | None = None,
        source_read_gbps: Number = None,
        destination_write_gbps: Number = None,
        safety_margin: float | str = 0.0,
        chunk_mib: Count = None,
        recursive: Flag = True,
        include: Texts = (),
        exclude: Texts = (),
        conflict: ConflictRule = "replace",
        publish_last: Texts = (),
        verify: Verification = "stored",
        allow_empty: Flag = False,
        allow_failed: Flag = False,
        move: Flag = False,
        strict_metadata: Flag = False,
        guess_mime_type: Flag = True,
        files_from: Texts | None = None,
        newer_than: str | None = None,
        older_than: str | None = None,
        min_size: str | None = None,
        max_size: str | None = None,
        delete: Flag = False,
        max_delete: str = DEFAULT_MAX_DELETE,
        allow_unmatched_patterns: Flag = False,
        bwlimit: str | None = None,
        on_illegal_key: IllegalKeyRule = "fail",
        on_archived_object: ArchivedObjectRule = "fail",
        server_side_copy: ServerSideRule = "auto",
        encrypt: Encryption = "auto",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        known = self.keep(locals())
        check_known({name: known[name] for name in known.keys() & JobArguments.__annotations__})

    template_fields: Sequence[str] = (*SkyplaneOperator.template_fields, *names_of(__init__))

    @property
    def map_label(self) -> str:
        """Both ends, for the label of a mapped task."""
        return label_of(*urls_of(vars(self)))

    def transfer_job(self) -> TransferJob:
        """The job that the rendered arguments describe. Raises ConfigurationInvalid."""
        return job_of(self.arguments(JobArguments.__annotations__))
