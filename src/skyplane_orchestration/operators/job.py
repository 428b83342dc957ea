"""`SkyplaneJobOperator`: the base of the operators that make a job from their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.operators.arguments import takes
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.operators.job_arguments import (
    DEFAULTS,
    TYPES,
    check_known,
    job_of,
    known_part_of,
    urls_of,
)

#: The `map_index_template` of operators with two ends, where the user gives none.
MAP_INDEX_TEMPLATE: Final = "{{ task.map_label }}"

#: Characters of a URL. Airflow's table keeps 250 of a label.
_MOST: Final = 40


def label_of(source_url: str, destination_url: str) -> str:
    """Both ends, with the middle of long URLs left out: the last folder tells tasks apart."""
    return f"{_short(source_url)} to {_short(destination_url)}"


def _short(url: str) -> str:
    if len(url) <= _MOST:
        return url
    path = url.rpartition("://")[2]
    parts = path.rstrip("/").split("/")
    short = f"{parts[0]}/…/{parts[-1]}" if len(parts) > 2 else path
    return short if len(short) <= _MOST else f"…{short[1 - _MOST :]}"


class SkyplaneJobOperator(SkyplaneOperator):
    """Base of the operators that have a job.

    Args:
        job: the whole job, or its `to_dict()`, in place of all other arguments. All its
            texts are templates.
        source_url: `s3://bucket/prefix/`; the key of one object with `recursive=False`.
        source_region: region tag such as `aws:ap-southeast-2`; empty: the store is asked. A region
            that only a grid of your own has is given in a `job`.
        source_endpoint: address of an S3-compatible service.
        source_conn_id: Airflow connection with the credentials, resolved when the task runs;
            None: the worker's own credentials.
        destination_url, destination_region, destination_endpoint, destination_conn_id: the
            same for the destination.
        recursive, include, conflict and the other fields of `TransferJob`: see there. A template
            of a time, size or rate that renders to an empty text means no bound.
        objective: without one of the next: `knee`, the plan with the least sum of its bill and of
            the time until the end, or `cheapest`, the cheapest at the rate of the direct path.
        value_of_time_usd_per_hour: what an hour until the end is worth to the knee, or with
            `min_throughput_gbps`; without it, what the connection says.
        min_throughput_gbps: the cheapest plan at this rate or more.
        exactly: plan at exactly `min_throughput_gbps`, as the paper does.
        max_usd_per_gb, max_cost_usd: the fastest plan for at most this price or cost.
        deadline_s: the cheapest plan that ends within this time.
        allow_regions, exclude_regions: globs of the regions that may and may not relay.
        max_job_usd: highest total cost. A plan that costs more is refused, and a transfer
            that has cost so much is stopped; the task fails without a retry.
        on_no_capacity, network_tier, already_this_month_gb, source_storage_class, key_requests: see
            `Policy`.
        instance_limit, vcpu_quota, source_read_gbps, destination_write_gbps, safety_margin,
            confidence, chunk_mib: see `Limits`.
    """

    template_fields_renderers = {"job": "json"}  # noqa: RUF012 - Airflow's own declaration
    default_map_index_template = MAP_INDEX_TEMPLATE
    #: Whether the task can do nothing without a job.
    needs_job: ClassVar[bool] = True
    job: TransferJob | Mapping[str, Any] | None
    source_url: str | None

    @takes(TYPES, DEFAULTS)
    def __init__(self, **kwargs: Any) -> None:
        own = {name: kwargs.pop(name, default) for name, default in DEFAULTS.items()}
        super().__init__(**kwargs)
        known = self.keep(own)
        needs_ends = self.needs_job or any(urls_of(own))
        check_known(known_part_of(own["job"], known), needs_ends=needs_ends)

    @property
    def map_label(self) -> str:
        """Both ends, for the label of a mapped task."""
        return label_of(*urls_of(vars(self)))

    def transfer_job(self) -> TransferJob:
        """The job that the rendered arguments describe. Raises ConfigurationInvalid."""
        return job_of(self.arguments(TYPES))
