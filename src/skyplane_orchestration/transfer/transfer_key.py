"""The transfer key: which rules of a job tell its transfers apart."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Final

from skyplane_gateway.common.job_options import JobOptions
from skyplane_gateway.common.object_filter import ALL_OBJECTS
from skyplane_gateway.common.schema import encode
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob

#: Rules that are part of a transfer key even if they are the defaults.
_ALWAYS_IN_KEY: Final = ("recursive", "include", "exclude", "conflict")


def transfer_key_of(identity: RunIdentity, job: TransferJob) -> str:
    """The identity of a job within a run; the same for every retry."""
    rule = {name: getattr(job, name) for name in _ALWAYS_IN_KEY}
    if job.object_filter != ALL_OBJECTS:
        rule["filter"] = encode(job.object_filter)
    for one in fields(JobOptions):
        value = getattr(job, one.name)
        is_in_transfer_key = one.metadata.get("is_in_transfer_key", True)
        # A newer option leaves the keys of jobs alone that do not use it.
        if one.name not in rule and is_in_transfer_key and value != one.default:
            rule[one.name] = value
    if job.encrypt != "auto":
        rule["encrypt"] = job.encrypt
    given = ("content_type", "cache_control", "headers", "object_metadata")
    rule |= {name: getattr(job, name) for name in given if getattr(job, name)}
    return identity.transfer_key(job.source, job.destination, json.dumps(rule))
