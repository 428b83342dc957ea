"""`TransferModel`: one transfer of a `defs.yaml`."""

# No postponed annotations: Dagster reads those of the fields.

from collections.abc import Sequence
from typing import Any, Final

import dagster as dg
from pydantic import Field

from skyplane_gateway.config import ArchivedObjectRule, ConflictRule, IllegalKeyRule, Verification
from skyplane_orchestration.dagster.components.rendered import Flag, Number, Rendered, Whole
from skyplane_orchestration.model.job import (
    Encryption,
    Limits,
    NetworkTierRule,
    NoCapacityRule,
    Policy,
    ServerSideRule,
    TransferJob,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.objective_choice import chosen_objective

_ENDS: Final = ("source", "destination")
_OBJECTIVE: Final = (
    "min_throughput_gbps",
    "exactly",
    "max_usd_per_gb",
    "max_cost_usd",
    "deadline_s",
)
_LIMITS: Final = (
    "instance_limit",
    "max_relays",
    "vcpu_quota",
    "source_read_gbps",
    "destination_write_gbps",
    "safety_margin",
    "chunk_mib",
)
#: Field -> its name in `Policy`.
_POLICY: Final = {
    "allow_regions": "allow",
    "exclude_regions": "exclude",
    "max_job_usd": "max_job_usd",
    "on_no_capacity": "on_no_capacity",
    "network_tier": "network_tier",
}
#: Field -> its name in `Location`, without `source_` and `destination_`.
_LOCATION: Final = {
    "url": "url",
    "region": "region",
    "endpoint": "endpoint_url",
    "credential_ref": "credential_ref",
}


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
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self
            if value is not None and name != "name"
        }
        source, destination = (Location(**_taken(given, _names(end))) for end in _ENDS)
        objective = chosen_objective(**_taken(given, {name: name for name in _OBJECTIVE}))
        limits = Limits(**_taken(given, {name: name for name in _LIMITS}))
        policy = Policy(**_taken(given, _POLICY))
        # The other fields have their names in a job.
        return TransferJob(source, destination, objective, limits=limits, policy=policy, **given)


def _names(end: str) -> dict[str, str]:
    return {f"{end}_{field}": name for field, name in _LOCATION.items()}


def _taken(given: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Take these fields out of `given`, under their other names."""
    return {other: given.pop(name) for name, other in names.items() if name in given}
