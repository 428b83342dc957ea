"""Store specifications and selection rules of jobs and locations."""

from __future__ import annotations

import os
from typing import Final

from skyplane_gateway.selection import SelectionRule
from skyplane_gateway.stores import (
    StoreSpec,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location


def spec_of(location: Location) -> StoreSpec:
    """The store behind a location, as gateways are told.

    An S3 location without an endpoint takes the one that the AWS CLI and SDKs would take
    here: AWS_ENDPOINT_URL_S3, then AWS_ENDPOINT_URL. Gateways do not see these variables.
    """
    endpoint = location.endpoint_url
    if location.kind == "s3" and not endpoint:
        endpoint = next((os.environ[name] for name in _S3_ENDPOINTS if os.environ.get(name)), "")
    return StoreSpec(
        kind=location.kind,
        bucket=location.bucket,
        endpoint_url=endpoint or None,
        region=location.region.partition(":")[2] or None if location.kind != "file" else None,
        options=tuple(sorted(location.options.items())),
    )


def rule_of(job: TransferJob) -> SelectionRule:
    """What is copied, to which keys, in the form that the lead applies too."""
    return SelectionRule(
        source_prefix=job.source.key,
        destination_prefix=job.destination.key,
        recursive=job.recursive,
        include=job.include,
        exclude=job.exclude,
        conflict=job.conflict,
    )


#: Where the AWS CLI looks for another endpoint, in this order.
_S3_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
