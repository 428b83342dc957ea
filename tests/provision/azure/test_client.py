"""Retries, pages, operations and credentials of Azure's clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import requests
from tests.manual_clock import ManualClock
from tests.provision.azure.harness import AzureHarness
from tests.provision.azure.samples import FLEET, REGION, a_request, prepared

from skyplane_gateway.common.objects import Credentials
from skyplane_orchestration.errors import (
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.azure import AzureCloud, AzureOptions
from skyplane_orchestration.provision.azure.client import credential_of
from skyplane_orchestration.security.store_credentials import SCOPES_OPTION, CredentialSources
from strict_clouds.arm_wire import SUBSCRIPTION

SCOPE = "https://management.azure.com/.default"


def test_the_wait_that_azure_asks_for_is_kept(harness: AzureHarness) -> None:
    harness.arm.throttle("groups.get")
    before_s = harness.clock.now_s
    harness.azure().leftovers(FLEET.fleet_key, [REGION])
    assert harness.clock.now_s - before_s >= 2.0


@pytest.mark.parametrize(("status", "code"), [(502, ""), (500, "InternalServerError")])
def test_faults_are_passed_over(harness: AzureHarness, status: int, code: str) -> None:
    harness.arm.fail("machines.list", status, code, times=3)
    assert harness.azure().describe(FLEET.fleet_key, [REGION]) == ()


def test_all_pages_are_read(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    for index in range(5):
        cloud.launch(a_request(instance=f"{REGION}/{index}"))
    found = cloud.describe(FLEET.fleet_key, [REGION])
    assert len(found) == 5
    assert all(one.address for one in found)


def test_an_operation_that_does_not_end_is_an_error(harness: AzureHarness) -> None:
    harness.arm.conditions.operation_polls = 10_000
    with pytest.raises(CloudUnavailable, match="has not done it after 600 s"):
        prepared(harness.azure())


def test_nobody_answers() -> None:
    options = AzureOptions(SUBSCRIPTION, endpoint_url="http://127.0.0.1:9")
    cloud = AzureCloud(options, clock=ManualClock().clock)
    with pytest.raises(CloudUnavailable, match="does not answer"):
        cloud.regions()


def test_another_subscription_is_refused(harness: AzureHarness) -> None:
    options = AzureOptions("f" * 8 + "-89ab-cdef-0123-456789abcdef", endpoint_url=harness.arm.url)
    cloud = AzureCloud(options, clock=harness.clock.clock)
    with pytest.raises(CloudAccessDenied, match="SubscriptionNotFound"):
        cloud.regions()


def a_credential(found: Mapping[str, str] | None) -> tuple[Any, list[Location]]:
    asked: list[Location] = []

    def resolve(_: str, location: Location) -> Credentials | None:
        asked.append(location)
        return None if found is None else Credentials(found)

    options = AzureOptions(SUBSCRIPTION, credential_ref="mine:1")
    return credential_of(options, CredentialSources({"mine": resolve}), SCOPE), asked


def test_a_reference_is_asked_for_a_token_of_the_resource_manager() -> None:
    credential, asked = a_credential({"bearer_token": "t", "expires_at": "1700000000"})
    assert tuple(credential.get_token(SCOPE)) == ("t", 1_700_000_000)
    assert [one.options[SCOPES_OPTION] for one in asked] == [SCOPE]


@pytest.mark.parametrize(
    ("endpoint", "sent"), [("https://a.test", "Bearer t"), ("http://a.test", None)]
)
def test_a_token_is_sent_by_tls_only(
    endpoint: str, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers: list[Mapping[str, str]] = []

    def request(*_: object, **asked: Any) -> requests.Response:
        headers.append(asked["headers"])
        raise requests.ConnectionError

    monkeypatch.setattr(requests.Session, "request", request)
    sources = CredentialSources({"mine": lambda *_: Credentials({"bearer_token": "t"})})
    options = AzureOptions(SUBSCRIPTION, credential_ref="mine:1", endpoint_url=endpoint)
    with pytest.raises(CloudUnavailable, match="does not answer"):
        AzureCloud(options, sources, ManualClock().clock).regions()
    assert {one.get("Authorization") for one in headers} == {sent}


@pytest.mark.parametrize("found", [None, {"account_key": "a2V5"}])
def test_keys_of_storage_launch_nothing(found: Mapping[str, str] | None) -> None:
    credential, _ = a_credential(found)
    with pytest.raises(CloudAccessDenied, match="mine:1 has no service principal"):
        credential.get_token(SCOPE)


def test_variables_without_a_principal_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE_ACCOUNT_KEY", "a2V5")
    options = AzureOptions(SUBSCRIPTION, credential_ref="env:MINE")
    with pytest.raises(ConfigurationInvalid, match="MINE_TENANT_ID and MINE_CLIENT_ID") as caught:
        credential_of(options, CredentialSources(), SCOPE).get_token(SCOPE)
    assert "ACCOUNT_KEY" not in str(caught.value)
