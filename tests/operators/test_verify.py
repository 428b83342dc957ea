"""The verify operator, with a client that reports differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.operators.conftest import FakeHook
from tests.storage.manifest.places import commit

from skyplane_orchestration import Client
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators import SkyplaneTransferOperator, SkyplaneVerifyOperator
from skyplane_orchestration.storage.compare import Difference, VerifyReport

SRC, DST = "s3://lake/dt={{ ds }}/", "gs://copy/"


def report(*differences: Difference) -> VerifyReport:
    bad = len(differences)
    return VerifyReport(
        SRC, DST, 9, 9 - bad, bad, 0, 0, None, 900, 0, has_checksums=True, differences=differences
    )


def operator(**arguments: Any) -> SkyplaneVerifyOperator:
    return SkyplaneVerifyOperator(
        task_id="verify", source_url="s3://lake/a/", destination_url=DST, **arguments
    )


def client_of(hook: FakeHook, found: VerifyReport) -> Any:
    client: Any = hook.client({}, "default")
    client.report = found
    return client


def test_equal_places(hook: FakeHook, context: Any) -> None:
    client = client_of(hook, report())
    value = operator(source_conn_id="lake", include="*.csv", download=True).execute(context)
    assert (value["is_equal"], value["equal"]) == (True, 9)
    ((job, arguments),) = client.of("verify")
    assert (job.source.credential_ref, job.destination.url) == ("airflow:lake", DST)
    assert (job.include, arguments["download"]) == (("*.csv",), True)


def test_it_takes_the_arguments_of_the_copy(hook: FakeHook, context: Any) -> None:
    client = client_of(hook, report())
    values: dict[str, Any] = {
        "source_region": "aws:eu-west-3",
        "conflict": "skip",
        "files_from": ["a", "b"],
        "newer_than": "7d",
        "min_size": "1K",
        "move": True,
        "min_throughput_gbps": 3,
        "max_job_usd": 40,
        "strict_metadata": True,
        "on_archived_object": "skip",
    }
    operator(**values).execute(context)
    ((job, _),) = client.of("verify")
    copy = SkyplaneTransferOperator(
        task_id="copy", source_url="s3://lake/a/", destination_url=DST, **values
    )
    assert job == copy.transfer_job()
    SkyplaneVerifyOperator(task_id="whole", job=job).execute(context)
    assert client.of("verify")[-1][0] == job


def test_a_missing_end_fails_the_parse() -> None:
    with pytest.raises(ConfigurationInvalid, match="destination_url is missing"):
        SkyplaneVerifyOperator(task_id="verify", source_url="s3://lake/a/")


def test_a_pattern_without_a_match_is_in_the_log(
    hook: FakeHook, context: Any, task_log: Callable[[], str]
) -> None:
    client_of(hook, replace(report(), warnings=("no key at either end matches exclude 'x'",)))
    assert len(operator(exclude="x").execute(context)["warnings"]) == 1
    assert "no key at either end matches exclude 'x'" in task_log()


def test_the_first_differences_are_in_the_message(
    hook: FakeHook, context: Any, task_log: Callable[[], str]
) -> None:
    rows = [Difference("missing", f"s3://lake/a/{n}", "", "not there") for n in range(7)]
    client_of(hook, report(*rows))
    with pytest.raises(AirflowException) as caught:
        operator().execute(context)
    message = str(caught.value)
    assert message.startswith("objects-differ: 7 of 9 objects are not equal: 7 missing")
    assert "missing s3://lake/a/4: not there; and 2 more" in message
    assert "s3://lake/a/5" not in message
    assert "s3://lake/a/6" in task_log()
    assert context["pushed"]["differences"]["missing"] == 7


def test_both_ends_are_templates() -> None:
    assert {"source_url", "destination_url", "include"} <= set(operator().template_fields)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "dst").mkdir()
    (tmp_path / "dst" / "a").write_text("1")
    commit(Location(f"{tmp_path}/dst/"), ["a"])
    return tmp_path / "dst"


def test_against_the_manifest(hook: FakeHook, context: Any, place: Path) -> None:
    client: Any = hook.client({}, "default")
    client.place_manifest = Client().manifest(Location(f"{place}/"))
    verify = operator(against="manifest")
    assert verify.execute(context)["same"] == 1
    assert client.of("manifest") == [Location(DST)]
    assert not client.of("verify")
    (place / "a").unlink()
    with pytest.raises(AirflowException, match=r"objects-differ: .* does not hold: missing: a"):
        verify.execute(context)
    assert context["pushed"]["differences"]["missing"] == ["a"]


def test_the_manifest_has_to_be_signed(hook: FakeHook, context: Any, place: Path) -> None:
    client: Any = hook.client({}, "default")
    client.place_manifest = Client().manifest(Location(f"{place}/"))
    public = Ed25519PrivateKey.generate().public_key()
    form = Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    (place.parent / "key.pub").write_bytes(public.public_bytes(*form))
    with pytest.raises(AirflowException, match="unsigned: the signature of run 1"):
        operator(against="manifest", public_key=f"{place.parent}/key.pub").execute(context)


def test_a_destination_without_a_manifest_fails(hook: FakeHook, context: Any) -> None:
    hook.client({}, "default")
    with pytest.raises(AirflowException, match="has no manifest"):
        operator(against="manifest").execute(context)
