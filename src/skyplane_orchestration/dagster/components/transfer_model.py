"""`TransferModel`: one transfer of a `defs.yaml`."""

# No postponed annotations: Dagster reads those of the fields.

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from skyplane_gateway.config import ArchivedObjectRule, ConflictRule, IllegalKeyRule, Verification
from skyplane_orchestration.dagster.components.rendered import Flag, Number, Rendered, Whole
from skyplane_orchestration.model.flat_job import flat_job
from skyplane_orchestration.model.job import (
    Encryption,
    NetworkTierRule,
    NoCapacityRule,
    ServerSideRule,
    TransferJob,
)


class TransferModel(dg.Model, Rendered):
    """One transfer: the fields of `TransferJob`, with the plain names of the Airflow operators.

    A field that is not given has the default of `TransferJob`.
    """

    name: str = Field(description="Key of the asset, with / between its parts.")
    source_url: str = Field(
        description="Such as s3://bucket/prefix/; {partition_key} is replaced; see Partitions."
    )
    source_region: str | None = Field(None, description="Such as aws:eu-west-3.")
    source_endpoint: str | None = None
    source_credential_ref: str | None = Field(None, description="Such as profile:NAME.")
    destination_url: str
    destination_region: str | None = None
    destination_endpoint: str | None = None
    destination_credential_ref: str | None = None

    min_throughput_gbps: Number | None = Field(
        None, description="The cheapest plan at this rate or more."
    )
    exactly: Flag | None = None
    max_usd_per_gb: Number | None = Field(None, description="The fastest plan at this price.")
    max_cost_usd: Number | None = Field(None, description="The fastest plan at this cost.")
    deadline_s: Number | None = Field(None, description="The cheapest plan that ends in this time.")

    recursive: Flag | None = None
    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    conflict: ConflictRule | None = None
    publish_last: Sequence[str] | None = None
    verify: Verification | None = None
    allow_empty: Flag | None = None
    allow_failed: Flag | None = None
    move: Flag | None = None
    strict_metadata: Flag | None = None
    guess_mime_type: Flag | None = None
    files_from: Sequence[str] | None = None
    newer_than: str | None = None
    older_than: str | None = None
    min_size: str | None = None
    max_size: str | None = None
    delete: Flag | None = None
    max_delete: str | None = None
    allow_unmatched_patterns: Flag | None = None
    bwlimit: str | None = None
    on_illegal_key: IllegalKeyRule | None = None
    on_archived_object: ArchivedObjectRule | None = None
    server_side_copy: ServerSideRule | None = None
    encrypt: Encryption | None = None
    volume_gb: Number | None = None
    objects: Whole | None = None

    allow_regions: Sequence[str] | None = None
    exclude_regions: Sequence[str] | None = None
    max_job_usd: Number | None = None
    on_no_capacity: NoCapacityRule | None = None
    network_tier: NetworkTierRule | None = None
    instance_limit: Whole | None = None
    max_relays: Whole | None = None
    vcpu_quota: dict[str, Whole] | None = None
    source_read_gbps: Number | None = None
    destination_write_gbps: Number | None = None
    safety_margin: Number | None = None
    chunk_mib: Whole | None = None

    def job(self) -> TransferJob:
        """The job. Raises ConfigurationInvalid."""
        return flat_job({name: value for name, value in self if name != "name"})
