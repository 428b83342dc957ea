"""Every argument of every Dagster face with values of right and wrong types."""

# No postponed annotations: Dagster reads those of the functions.

import math
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import dagster as dg
import pytest
from pydantic import ValidationError
from tests.annotations import allows
from tests.dagster.conftest import Lab
from tests.dagster.test_placeholders import failure

from skyplane_orchestration.dagster import (
    AssetOptions,
    JobArguments,
    SkyplaneResource,
    SkyplaneTranslatorData,
    build_skyplane_cleanup_sensor,
    build_skyplane_manifest_check,
    build_skyplane_source_asset,
    build_skyplane_sweep_sensor,
    build_skyplane_transfer_asset,
    build_skyplane_transfer_assets,
    skyplane_assets,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location

VALUES: list[Any] = [
    "x", "true", "false", "yes", "", "None", "{{ x }}", "5", 5, 0, 1, 1.5, math.nan, math.inf,
    True, False, None, ["x"], ["x", 5], [], ("x",), {"x"}, {"a": "b"}, {"a": 1}, {1: "a"}, b"x",
]  # fmt: skip
JOB = TransferJob(Location("s3://a/"), Location("s3://b/"))
ENDS = {"source": "s3://a/", "destination": "s3://b/"}

#: Face -> its required arguments, and the types of those that it passes on.
FACES: dict[Callable[..., Any], tuple[dict[str, Any], Any]] = {
    build_skyplane_transfer_asset: ({"name": "copy", **ENDS}, JobArguments),
    build_skyplane_transfer_assets: (
        {"destinations": {"copy": "s3://b/"}, "source": "s3://a/"},
        AssetOptions,
    ),
    skyplane_assets: ({"jobs": {"copy": JOB}}, None),
    build_skyplane_source_asset: ({"name": "copy", "location": "s3://a/"}, None),
    build_skyplane_sweep_sensor: ({}, None),
    build_skyplane_cleanup_sensor: ({}, None),
    build_skyplane_manifest_check: ({"asset": "copy", "location": "s3://a/"}, None),
    SkyplaneTranslatorData: ({"name": "copy", "job": JOB}, None),
}


#: These faces take a set for a sequence too.
LISTS = (list, tuple, set)


def arguments_of(face: Callable[..., Any], passed_on: Any) -> dict[str, Any]:
    """The types of all arguments of a face."""
    made = face.__init__ if isinstance(face, type) else face  # type: ignore[misc]
    hints = {**get_type_hints(made), **(get_type_hints(passed_on) if passed_on else {})}
    return {name: hints[name] for name in hints if name not in ("return", "job", "options")} | (
        {"job": TransferJob} if face is SkyplaneTranslatorData else {}
    )


CASES = [
    (face, name, hint)
    for face, (_, passed_on) in FACES.items()
    for name, hint in arguments_of(face, passed_on).items()
]


def test_the_table_has_every_argument() -> None:
    assert len(CASES) > 100
    assert {name for _, name, _ in CASES} >= {*JobArguments.__annotations__, "deps", "name", "jobs"}


@pytest.mark.parametrize(
    ("face", "name", "hint"), CASES, ids=[f"{face.__name__}-{name}" for face, name, _ in CASES]
)
def test_an_argument_is_of_its_type(face: Callable[..., Any], name: str, hint: Any) -> None:
    required, _ = FACES[face]
    for value in VALUES:
        error = refusal(face, {**required, name: value})
        # What is of the right type may still have no meaning.
        if not allows(hint, value, lists=LISTS):
            assert isinstance(error, ConfigurationInvalid), value
            assert name in str(error)
        if isinstance(error, ConfigurationInvalid):
            assert "\n" not in str(error)


def refusal(face: Callable[..., Any], arguments: dict[str, Any]) -> Exception | None:
    """The error with which the face refuses the arguments; every other one is raised."""
    try:
        face(**arguments)
    except (ConfigurationInvalid, dg.DagsterError) as error:
        return error
    return None


def given(name: str, value: Any) -> SkyplaneResource:
    return SkyplaneResource(**{name: value})


@pytest.mark.parametrize("name", SkyplaneResource.model_fields)
def test_a_field_of_the_resource_is_of_its_type(name: str) -> None:
    hint = SkyplaneResource.model_fields[name].annotation
    for value in VALUES:
        may_be_zero = name == "value_of_time_usd_per_hour"
        if allows(hint, value, lists=LISTS) and (value != 0 or may_be_zero):
            given(name, value)
        else:
            with pytest.raises(ValidationError, match=name):
                given(name, value)


def test_a_number_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = given("max_active_fleets", dg.EnvVar.int("FLEETS"))
    monkeypatch.setenv("FLEETS", "7")
    assert resource.process_config_and_initialize().max_active_fleets == 7
    for text in ("0", "yes", "", "1.5"):
        monkeypatch.setenv("FLEETS", text)
        with pytest.raises((ValidationError, dg.DagsterInvalidConfigError)):
            resource.process_config_and_initialize()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("job", "s3://a/"), ("job", JOB.to_dict()), ("job", True), ("manifest", 5),
        ("manifest", ["m"]), ("manifest", True), ("partition_key", 5), ("partition_key", ["x"]),
        ("gateways", "yes"), ("gateways", True), ("gateways", None), ("gateways", 5),
    ],
)  # fmt: skip
def test_an_argument_of_a_run_is_of_its_type(name: str, value: Any, lab: Lab) -> None:
    @dg.asset
    def copy(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
        yield from skyplane.run(**{"context": context, "job": JOB, name: value})

    result = lab.materialize(copy)
    assert not result.success
    assert failure(result).startswith(f"configuration-invalid: {name} must be ")
    assert set(lab.client.verbs) <= {"identity"}
