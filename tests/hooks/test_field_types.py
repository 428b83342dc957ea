"""Every field of every connection is of its type, and a wrong one is one line that hides it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import Mock

import pytest
from tests.hooks.conftest import FakeConnection

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.settings import Settings
from skyplane_orchestration.hooks.skyplane import SkyplaneHook
from skyplane_orchestration.hooks.store_connections import (
    credentials_from_connection,
    location_from_connection,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provider_info import CONNECTION_FIELDS
from skyplane_orchestration.triggers.transfer import SkyplaneTransferTrigger

#: A secret is in each, so that a message that shows the value is seen.
TEXT, NUMBERS = "hush", (7, 1.5, math.nan)
VALUES: Final[tuple[Any, ...]] = (
    *(TEXT, "truee", "1", "{}", *NUMBERS, True, False, 0),
    *([TEXT], [1], {"key": TEXT}, {"key": 1}, {1: TEXT}, {"s3": TEXT}, {"s3": {"endpoint_url": 5}}),
)


def check_all(read: Callable[[Any], object], name: str) -> None:
    """Reads each value; an error names the field, in one line without the value."""
    wrong: list[str] = []
    for value in VALUES:
        try:
            read(value)
        except ConfigurationInvalid as error:
            is_shown = TEXT in str(error) and value != TEXT and name != "verify"
            if "\n" in str(error) or is_shown:
                wrong.append(f"{value!r}: {error}")
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            wrong.append(f"{name}={value!r}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", [*CONNECTION_FIELDS, "fleet_secret"])
def test_fields_of_the_skyplane_connection(name: str) -> None:
    def read(value: Any) -> None:
        settings = Settings.from_connection(FakeConnection("skyplane", extra_dejson={name: value}))
        wanted = CONNECTION_FIELDS.get(name, {"schema": {"type": ["string"]}})["schema"]["type"][0]
        kept = getattr(settings, name, None)
        if wanted == "string":
            assert isinstance(value, str)
        if wanted == "object":
            assert isinstance(kept, dict)
        if wanted == "integer":
            assert type(kept) is int
        if wanted == "number":
            assert type(kept) is float

    check_all(read, name)


CLOUDS: Final = {
    "aws": (
        Location("s3://bucket/key"),
        *("role_arn", "region_name", "endpoint_url", "profile_name", "aws_access_key_id"),
        *("aws_session_token", "assume_role_kwargs", "config_kwargs", "service_config"),
        *("session_kwargs", "verify", "assume_role_method"),
    ),
    "google_cloud_platform": (
        Location("gs://bucket/key"),
        *("is_anonymous", "key_path", "keyfile_dict", "scope", "impersonation_chain"),
    ),
    "wasb": (
        Location("az://account/container/key"),
        *("connection_string", "tenant_id", "shared_access_key", "sas_token", "account_key"),
        *("managed_identity_client_id", "workload_identity_tenant_id"),
    ),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, (_, *names) in CLOUDS.items() for name in names]
)
def test_fields_of_the_connections_of_stores(kind: str, name: str) -> None:
    location = CLOUDS[kind][0]
    assert isinstance(location, Location)

    def read(value: Any) -> None:
        location_from_connection(FakeConnection(kind, extra_dejson={name: value}), "c", location)

    check_all(read, name)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("true", True), ("T", True), ("1", True), ("false", False), ("F", False), ("0", False)],
)
def test_a_text_for_a_flag_is_never_true_by_itself(given: str, expected: bool) -> None:
    connection = FakeConnection("google_cloud_platform", extra_dejson={"is_anonymous": given})
    placed = location_from_connection(connection, "c", Location("gs://bucket/key"))
    assert placed.options == ({"anonymous": "true"} if expected else {})


def test_a_mistyped_flag_is_refused() -> None:
    connection = FakeConnection("google_cloud_platform", extra_dejson={"is_anonymous": "truee"})
    for read in (location_from_connection, credentials_from_connection):
        with pytest.raises(ConfigurationInvalid, match="is_anonymous must be true or false"):
            read(connection, "c", Location("gs://bucket/key"))


JOB: Final = TransferJob(Location("s3://a/"), Location("s3://b/"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"job": "s3://a/"},
        {"job": TransferJob(Location("s3://a/{{ ds }}/"), Location("s3://b/"))},
        {"manifest": 5},
        {"manifest": "s3://b/{{ ds }}.csv"},
        {"fleet_name": True},
        {"fleet_name": "{{ ds }}"},
        {"gateways": "here"},
        {"gateways": "{{ params.where }}"},
    ],
)
def test_the_hook_renders_nothing_and_checks_its_arguments_first(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    monkeypatch.setattr(SkyplaneHook, "get_connection", Mock(side_effect=AssertionError))
    arguments: dict[str, Any] = {"job": JOB, **wrong}
    context: Any = {"ti": None}
    with pytest.raises(ConfigurationInvalid, match=next(iter(wrong))) as caught:
        SkyplaneHook().run(context, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [5, None, True, ["a"], "{{ params.conn }}"])
def test_the_hook_refuses_another_connection_id(wrong: Any) -> None:
    with pytest.raises(ConfigurationInvalid, match="skyplane_conn_id"):
        SkyplaneHook(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"skyplane_conn_id": "{{ params.conn }}"},
        {"skyplane_conn_id": 5},
        {"identity": "a"},
        {"watched": []},
        {"poll_interval_s": "5"},
        {"cancel_on_kill": "false"},
    ],
)
def test_the_trigger_refuses_what_its_annotations_do_not_allow(wrong: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {
        "skyplane_conn_id": "c",
        "identity": {},
        "watched": {},
        "poll_interval_s": 5,
        "cancel_on_kill": True,
    }
    SkyplaneTransferTrigger(**arguments)
    with pytest.raises(ConfigurationInvalid, match=next(iter(wrong))):
        SkyplaneTransferTrigger(**{**arguments, **wrong})
