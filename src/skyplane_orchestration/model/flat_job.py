"""A job from plain values, by the names that Airflow's operators and Dagster's component share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import Limits, Policy, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.objective_choice import chosen_objective

_OBJECTIVE: Final = (
    "min_throughput_gbps",
    "exactly",
    "max_usd_per_gb",
    "max_cost_usd",
    "deadline_s",
)
#: Field of `Location` -> its plain name, behind `source_` or `destination_`.
_LOCATION: Final = {
    "url": "url",
    "region": "region",
    "endpoint_url": "endpoint",
    "credential_ref": "credential_ref",
}


def flat_job(given: Mapping[str, Any]) -> TransferJob:
    """The job; a value that is missing or None is the default.

    Args:
        given: `source_url` and the like, the numbers of `chosen_objective`, and the fields of
            `Policy`, `Limits` and `TransferJob`.

    Raises ConfigurationInvalid.
    """
    values = {name: value for name, value in given.items() if value is not None}

    def take(names: Mapping[str, str]) -> dict[str, Any]:
        return {field: values.pop(name) for field, name in names.items() if name in values}

    for end in ("source", "destination"):
        if not values.get(f"{end}_url"):
            raise ConfigurationInvalid(f"{end}_url is missing; give it, or a whole job")
        of_end = take({field: f"{end}_{name}" for field, name in _LOCATION.items()})
        values[end] = Location(**of_end)
    return TransferJob(
        objective=chosen_objective(**take({name: name for name in _OBJECTIVE})),
        policy=Policy(**take({entry.name: entry.name for entry in fields(Policy)})),
        limits=Limits(**take({entry.name: entry.name for entry in fields(Limits)})),
        **values,
    )
