"""Each face refuses a job whose credentials cannot be limited, before anything is launched.

The credentials are limited by the code of each store, which a service refuses for each reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient
from tests.clouds.fakes import open_account
from tests.memory_store import MemoryStore, create_bucket, delete_bucket
from tests.test_client import FakeProvisioner, Script
from tests.transfer.samples import PLAN

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.stores import registry
from skyplane_gateway.stores.azure import credentials as azure_credentials
from skyplane_gateway.stores.gcs import credentials as gcs_credentials
from skyplane_orchestration.cli.main import main
from skyplane_orchestration.client import Client
from skyplane_orchestration.client_settings import ClientSettings
from skyplane_orchestration.errors import ProvisionFailed
from skyplane_orchestration.model.fleet import GatewayCredentials
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import InstanceGroup, PlanPath, TransferPlan
from skyplane_orchestration.security.authority import FleetSecret

EVERYTHING: Final = {"Effect": "Allow", "Action": "*", "Resource": "*"}
LOOKS: Final = {"Effect": "Allow", "Action": "sts:GetCallerIdentity", "Resource": "*"}
LAUNCHED: Final = "an instance was launched"


class Elsewhere(FakeProvisioner):
    """Gateways on other machines."""

    name = "cloud"

    def runs_on_this_machine(self, plan: TransferPlan) -> bool:
        return False


@dataclass(frozen=True)
class Ends:
    """Places of one kind of store, and their regions."""

    kind: str
    urls: tuple[str, str]
    regions: tuple[str, str]

    @property
    def places(self) -> list[Location]:
        return [Location(*end) for end in zip(self.urls, self.regions, strict=True)]

    @property
    def plan(self) -> TransferPlan:
        groups = dict.fromkeys(self.regions, InstanceGroup("type", 1))
        source, sink = self.regions
        paths = (PlanPath(self.regions, 1.0),)
        return replace(PLAN, src=source, dst=sink, instances=groups, paths=paths)


AWS: Final = ("aws:us-east-1", "aws:eu-west-1")
S3: Final = Ends("s3", ("s3://here/p/", "s3://there/q/"), AWS)
ALIAS: Final = replace(S3, urls=("s3://here/p/", f"s3://mine-{'a' * 34}-s3alias/q/"))
GCS: Final = Ends("gcs", ("gs://here/p/", "gs://there/q/"), ("gcp:us-east1", "gcp:europe-west4"))
AZURE: Final = Ends(
    "azure", ("az://one/here/p/", "az://two/there/q/"), ("azure:eastus", "azure:westeurope")
)

Prepare = Callable[[Any, pytest.MonkeyPatch], None]


def keys(monkeypatch: pytest.MonkeyPatch, found: dict[str, str]) -> None:
    for name, value in found.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)


def policy_of(statement: Any) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [statement]}


def user(account: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch, account.principals.user(policy_of(EVERYTHING)))


def user_without_sts(account: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch, account.principals.user(policy_of(LOOKS)))


def role_without_trust(account: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = account.principals.role_session(policy_of(EVERYTHING), trusts_itself=False)
    keys(monkeypatch, made)


def role_of_identity_center(account: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "AWSReservedSSO_Data_1"
    made = account.principals.role_session(policy_of(EVERYTHING), name, trusts_itself=False)
    keys(monkeypatch, made)


def token_of_google(_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"error": "invalid_grant", "error_description": "no"}).encode()
    refusal = SimpleNamespace(status=400, data=body, headers={})
    found = SimpleNamespace(refresh=lambda _: None, token="whole", expiry=None, expired=False)
    monkeypatch.setattr(gcs_credentials, "Request", lambda: lambda **_: refusal)
    monkeypatch.setattr(gcs_credentials, "_default", lambda _: found)


def identity_of_azure(_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        error = HttpResponseError("no")
        error.status_code = 403
        raise error

    monkeypatch.setattr(azure_credentials, "_chain_token", lambda: AccessToken("t", 4_000_000_000))
    monkeypatch.setattr(BlobServiceClient, "get_user_delegation_key", refuse)


#: Reason -> the places, what makes it so, and a part of the line that says what to do.
REASONS: Final[dict[str, tuple[Ends, Prepare, str]]] = {
    "no right to GetFederationToken": (S3, user_without_sts, "sts:GetFederationToken"),
    "role does not trust itself": (S3, role_without_trust, "trust policy of the role"),
    "role of Identity Center": (S3, role_of_identity_center, "name instance_profile"),
    "alias of an access point": (ALIAS, user, "give the access point's ARN"),
    "token of another scope": (GCS, token_of_google, "auth/cloud-platform"),
    "no delegation key": (AZURE, identity_of_azure, "Storage Blob Delegator"),
}


ONE_OF_EACH: Final = (
    "no right to GetFederationToken",
    "token of another scope",
    "no delegation key",
)


@dataclass(frozen=True)
class Try:
    """One job with one rule for the credentials of gateways."""

    ends: Ends
    rule: GatewayCredentials
    provisioner: Elsewhere
    tmp_path: Path
    monkeypatch: pytest.MonkeyPatch

    def client(self, *_: Any, **__: Any) -> Client:
        return Client(
            identity=RunIdentity("local", "dag", "run"),
            provisioner=self.provisioner,
            secret=FleetSecret(b"s" * 32),
            gateway_credentials=self.rule,
        )

    @property
    def job(self) -> TransferJob:
        source, destination = self.ends.places
        return TransferJob(source, destination)

    def command(self, *words: str) -> str:
        opened = lambda *_, **__: self.provisioner  # noqa: E731
        self.monkeypatch.setattr(ClientSettings, "open_provisioner", opened)
        errors: list[str] = []
        self.monkeypatch.setattr("skyplane_orchestration.cli.main.print_error", errors.append)
        regions = ("--src-region", self.ends.regions[0], "--dst-region", self.ends.regions[1])
        rule = ("--gateway-credentials", self.rule, "--deployment", "d")
        assert main([*words, *self.ends.urls, *regions, *rule]) in (1, 2)
        return "".join(errors)


def raised(call: Callable[..., Any], *arguments: Any, **more: Any) -> str:
    with pytest.raises(Exception) as error:
        call(*arguments, **more)
    return str(error.value)


def run(of: Try) -> str:
    return raised(of.client().run, of.job)


def begin(of: Try) -> str:
    return raised(of.client().job_run(of.job).begin)


def provision(of: Try) -> str:
    return raised(of.client().provision, of.ends.plan, job=of.job)


def cp(of: Try) -> str:
    return of.command("cp", "-r")


def sync(of: Try) -> str:
    return of.command("sync")


def mv(of: Try) -> str:
    return of.command("cp", "-r", "--move")


def provision_command(of: Try) -> str:
    file = of.tmp_path / "plan.json"
    file.write_text(json.dumps(of.ends.plan.to_dict()))
    return of.command("provision", str(file), "-r")


def operator(of: Try, name: str, **arguments: Any) -> str:
    operators = pytest.importorskip("skyplane_orchestration.operators")
    hook = SimpleNamespace(client=of.client, placed_job=lambda job: job, placed=lambda one: one)
    base = import_module("skyplane_orchestration.operators.base").SkyplaneOperator
    of.monkeypatch.setattr(base, "hook", hook)
    made = getattr(operators, name)(task_id="t", job=of.job.to_dict(), **arguments)
    return raised(made.execute, {"ti": SimpleNamespace(xcom_push=lambda **_: None)})


def provision_operator(of: Try) -> str:
    return operator(of, "SkyplaneProvisionOperator", plan=of.ends.plan.to_dict())


def transfer_operator(of: Try) -> str:
    return operator(of, "SkyplaneTransferOperator")


def dagster(of: Try, module: str, job: Any) -> str:
    dg = pytest.importorskip("dagster")
    faces = pytest.importorskip("skyplane_orchestration.dagster")

    class Resource(faces.SkyplaneResource):  # type: ignore[misc, name-defined]
        def client(self, *_: Any, **__: Any) -> Any:
            return of.client()

    asset = job(faces)
    with dg.DagsterInstance.ephemeral() as used:
        made = dg.materialize(
            [asset],
            resources={"skyplane": Resource(deployment="test")},
            instance=used,
            raise_on_error=False,
        )
    (event,) = [one for one in made.all_events if one.event_type_value == "STEP_FAILURE"]
    assert event.step_key.endswith(module)
    return str(event.step_failure_data.user_failure_data.description)


def dagster_ops(of: Try) -> str:
    source, destination = of.ends.places
    return dagster(
        of,
        "provision",
        lambda faces: faces.build_skyplane_transfer_asset(
            "copy", source=source, destination=destination
        ),
    )


FACES: Final[tuple[Callable[[Try], str], ...]] = (
    run,
    begin,
    provision,
    cp,
    sync,
    mv,
    provision_command,
    provision_operator,
    transfer_operator,
    dagster_ops,
)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """An account of AWS; the stores are in memory, and there are no other credentials."""
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    buckets = [one.bucket for ends in (S3, ALIAS, GCS, AZURE) for one in ends.places]
    for kind in ("s3", "gcs", "azure"):
        monkeypatch.setitem(registry._MODULES, kind, "tests.memory_store")
    for bucket in buckets:
        create_bucket(bucket)
        MemoryStore(StoreSpec("memory", bucket)).put("p/a", b"x")
    with open_account() as made:
        for service in ("STS", "IAM"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", made.url)
        yield made
    for bucket in buckets:
        delete_bucket(bucket)


@pytest.mark.parametrize(
    ("reason", "face"),
    [
        (reason, face)
        for reason in REASONS
        for face in FACES
        # The other reasons of a store take the same way to each face.
        if face is provision or reason in ONE_OF_EACH
    ],
)
def test_nothing_is_launched_for_credentials_that_cannot_be_limited(
    account: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    reason: str,
    face: Callable[[Try], str],
) -> None:
    ends, prepare, line = REASONS[reason]
    prepare(account, monkeypatch)
    script = Script(errors={"ensure": ProvisionFailed(LAUNCHED)})
    told = face(Try(ends, "limited", Elsewhere(script), tmp_path, monkeypatch))
    assert line in told
    assert "gateways get only credentials that are limited to" in told
    assert "ensure" not in script.done
    # Only the credentials have held it up.
    assert LAUNCHED in face(Try(ends, "whole", Elsewhere(script), tmp_path, monkeypatch))
    assert "ensure" in script.done
