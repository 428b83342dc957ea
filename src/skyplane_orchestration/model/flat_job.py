"""A job from plain values, by the names that Airflow's operators and Dagster's component share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final, get_type_hints

from skyplane_gateway.common.wording import FieldName, Text
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import Limits, Policy, TransferJob
from skyplane_orchestration.model.location import Location, named_location
from skyplane_orchestration.model.objective_choice import OBJECTIVE_NAMES, chosen_objective

#: Field of `Location` -> its plain name, behind `source_` or `destination_`.
_LOCATION: Final = {
    "url": "url",
    "region": "region",
    "endpoint_url": "endpoint",
    "credential_ref": "credential_ref",
}


#: Fields of `TransferJob` that plain values make, and what only a listing tells.
_MADE: Final = ("source", "destination", "objective", "limits", "policy", "contents")


@cache
def flat_fields() -> dict[str, tuple[Any, Any]]:
    """The plain names -> type and default, which is None where there is none."""
    hints = get_type_hints(chosen_objective)
    defaults = chosen_objective.__kwdefaults__ or {}
    found: dict[str, tuple[Any, Any]] = {}
    for end in ("source", "destination"):
        place = _fields_of(Location)
        found |= {f"{end}_{name}": place[field] for field, name in _LOCATION.items()}
    for kind in (TransferJob, Policy, Limits):
        found |= _fields_of(kind)
    found = {name: one for name, one in found.items() if name not in _MADE}
    return {name: (hints[name], defaults[name]) for name in OBJECTIVE_NAMES} | found


def _fields_of(kind: type[Any]) -> dict[str, tuple[Any, Any]]:
    hints = get_type_hints(kind)
    return {
        one.name: (hints[one.name], None if one.default is MISSING else one.default)
        for one in fields(kind)
    }


def location_of(end: str, given: Mapping[str, Any]) -> Location:
    """The location of an end, `source` or `destination`, from its fields.

    Raises InvalidLocation, with the plain name of what is wrong.
    """
    return named_location(given, {field: f"{end}_{name}" for field, name in _LOCATION.items()})


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
            raise ConfigurationInvalid(
                Text(FieldName(f"{end}_url")) + " is missing; give it, or a whole job"
            )
        of_end = take({field: f"{end}_{name}" for field, name in _LOCATION.items()})
        values[end] = location_of(end, of_end)
    return TransferJob(
        objective=chosen_objective(**take({name: name for name in OBJECTIVE_NAMES})),
        policy=Policy(**take({entry.name: entry.name for entry in fields(Policy)})),
        limits=Limits(**take({entry.name: entry.name for entry in fields(Limits)})),
        **values,
    )
