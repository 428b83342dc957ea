"""What credentials gateways get, and that a run without limited ones is refused early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tests.manual_clock import ManualClock
from tests.transfer.samples import JOB, KEY, PLAN
from tests.transfer.test_fleet_control import FakeSessions, control_of

from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores import Reach
from skyplane_orchestration.errors import CredentialsTooWide
from skyplane_orchestration.model.fleet import GatewayCredentials
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.recovery.failover_decisions import Submit, Tenure
from skyplane_orchestration.security.store_credentials import (
    SCOPES_OPTION,
    UNASSUMED_OPTION,
    CredentialSources,
)
from skyplane_orchestration.storage.preflight import with_planned_regions
from skyplane_orchestration.transfer import gateway_credentials
from skyplane_orchestration.transfer.fleet_control import TransferRequest
from skyplane_orchestration.transfer.gateway_credentials import (
    ENDS,
    SentCredentials,
    reaches_of,
)

WHOLE = Credentials({"access_key_id": "whole"})
SOURCES = CredentialSources({"test": lambda *_: WHOLE})
#: An hour after the clock of a test starts.
ENDS_S: Final = 4600


def job_of(source: str = "s3://src/p/", target: str = "s3://dst/q/", **more: Any) -> TransferJob:
    common: Any = {"credential_ref": "test:x", "region": more.pop("region", "aws:us-east-1")}
    ends = Location(source, **common), Location(target, **common)
    return TransferJob(*ends, **{"server_side_copy": "never", **more})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Reach, ...]]:
    """Each call for limited credentials, which are `limited` and a number."""
    calls: list[tuple[Reach, ...]] = []

    def limited(found: Credentials, reaches: Sequence[Reach]) -> Credentials:
        assert found is WHOLE
        calls.append(tuple(reaches))
        return Credentials({"access_key_id": f"limited {len(calls)}", "expires_at": str(ENDS_S)})

    monkeypatch.setattr(gateway_credentials, "limited_credentials", limited)
    return calls


@pytest.mark.parametrize(
    ("job", "source", "sink"),
    [
        (
            job_of(recursive=True),
            (("p/",), ()),
            (("q/",), ()),
        ),
        (
            job_of("s3://src/p", "s3://dst", recursive=True),
            (("p/",), ()),
            (("",), ()),
        ),
        (
            job_of("s3://src/p/x", "s3://dst/q/y", recursive=False),
            ((), ("p/x",)),
            (("q/.skyplane/jobs/",), ("q/y",)),
        ),
        (
            job_of("s3://src/p/x", "s3://dst/q/", recursive=False),
            ((), ("p/x",)),
            (("q/.skyplane/jobs/",), ("q/x",)),
        ),
        # The key may be another one.
        (
            job_of("s3://src/p/x", "s3://dst/q/", recursive=False, on_illegal_key="escape"),
            ((), ("p/x",)),
            (("q/",), ()),
        ),
    ],
)
def test_sources_read_their_place_and_sinks_write_theirs_with_the_journals(
    job: TransferJob, source: Any, sink: Any
) -> None:
    (read,), (written,) = (reaches_of(job, side) for side in ENDS)
    assert (read.folders, read.keys, read.writes) == (*source, False)
    assert (written.folders, written.keys, written.writes) == (*sink, True)


def test_a_store_that_copies_by_itself_reads_the_source_as_the_sink() -> None:
    job = job_of(recursive=True, server_side_copy="auto")
    assert reaches_of(job, "sink")[1:] == reaches_of(job, "source")


@pytest.mark.parametrize(
    ("host", "rule", "source", "sink"),
    [
        ("", "limited", "limited 1", "limited 2"),
        ("", "whole", "whole", "whole"),
        # Nothing leaves this machine.
        ("this machine", "limited", "whole", "whole"),
    ],
)
def test_gateways_on_other_machines_get_limited_credentials(
    host: str, rule: GatewayCredentials, source: str, sink: str, asked: list[tuple[Reach, ...]]
) -> None:
    sessions = FakeSessions("ab")
    sessions.fleet = replace(sessions.fleet, host=host)
    request = TransferRequest(KEY, job_of(recursive=True), SentCredentials(SOURCES, rule))
    order = Submit(Tenure("a", 1), ("a",), ("b",))
    control_of(sessions).take_over(request, order)
    got = [sessions.gateways[node].credentials["access_key_id"] for node in "ab"]
    assert got == [source, sink]
    assert [sessions.gateways[node].tried_prefix for node in "ab"] == ["p/", "q/"]
    # Renewed ones are limited too.
    sessions.gateways["b"].needs_credentials = {KEY: ["sink"]}
    control_of(sessions).renew_credentials(request, 1)
    fresh = "limited 3" if sink == "limited 2" else sink
    renewed = [call for call in sessions.calls if call[:2] == ("b", "renew credentials")]
    assert [call[-1]["access_key_id"] for call in renewed] == [fresh]


def elsewhere(identity: str = "") -> Any:
    """A provisioner of other machines, whose gateways open stores of one kind themselves."""
    return SimpleNamespace(
        name="cloud", runs_on_this_machine=lambda _: False, store_identity=lambda _: identity
    )


WIDE: Final = {SCOPES_OPTION: "https://www.googleapis.com/auth/cloud-platform"}


@pytest.mark.parametrize(
    ("url", "endpoint_url", "rule", "options"),
    [
        ("gs://src/p/", "", "limited", WIDE),
        ("gs://src/p/", "https://storage-xyz.p.googleapis.com", "limited", WIDE),
        ("gs://src/p/", "", "whole", {}),
        # The credentials of other services are sent as they are.
        ("gs://src/p/", "https://gcs.example.com", "limited", {}),
        ("s3://src/p/", "", "limited", {UNASSUMED_OPTION: "true"}),
        (
            "s3://src/p/",
            "https://s3.eu-west-1.amazonaws.com",
            "limited",
            {UNASSUMED_OPTION: "true"},
        ),
        ("s3://src/p/", "", "whole", {}),
        ("s3://src/p/", "https://minio.example.com", "limited", {}),
    ],
)
def test_only_what_will_be_limited_is_asked_for_in_that_form(
    url: str,
    endpoint_url: str,
    rule: GatewayCredentials,
    options: dict[str, str],
    asked: list[tuple[Reach, ...]],
) -> None:
    places: list[Location] = []

    def resolve(_: str, location: Location) -> Credentials:
        places.append(location)
        return WHOLE

    place = Location(url, "aws:us-east-1", endpoint_url=endpoint_url, credential_ref="test:x")
    job = replace(job_of(), source=place)
    SentCredentials(CredentialSources({"test": resolve}), rule).of(job, "source")
    assert [one.options for one in places] == [options]


def test_findings_say_what_gateways_would_get(
    asked: list[tuple[Reach, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(
        job: TransferJob,
        provisioner: Any,
        rule: GatewayCredentials = "limited",
        sources: CredentialSources = SOURCES,
    ) -> list[str]:
        found = SentCredentials(sources, rule).findings(job, provisioner)
        return [one.text.removeprefix("gateways ") for one in found]

    job, ids = job_of(), map(str, count())
    assert told(job, elsewhere()) == [
        "get some that reach s3://src/p/ only",
        "get some that reach s3://dst/q/ only",
    ]
    assert told(job, elsewhere(), "whole") == ["get those that were found"] * 2
    # Many sources give others at each call.
    monkeypatch.setattr(gateway_credentials, "limited_credentials", lambda found, _: found)
    fresh = CredentialSources({"test": lambda *_: Credentials({"access_key_id": next(ids)})})
    assert told(job, elsewhere(), sources=fresh) == ["get those that were found"] * 2
    usual = replace(JOB, source=Location("s3://src/"), destination=Location("s3://dst/"))
    assert told(usual, elsewhere("s3")) == ["use the identity of their machines"] * 2
    here = SimpleNamespace(name="local")
    assert told(job, here) == ["run on this machine: nothing leaves it"] * 2


def test_a_run_without_limited_credentials_is_refused_before_a_gateway_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> Credentials:
        raise CredentialsTooWide.of("s3://src/p/", "no", "add a line")

    monkeypatch.setattr(gateway_credentials, "limited_credentials", refuse)
    job, sent = job_of(recursive=True), SentCredentials(SOURCES)
    with pytest.raises(CredentialsTooWide, match="add a line"):
        sent.require(job, PLAN, elsewhere())
    assert [one.is_ok for one in sent.findings(job, elsewhere())] == [False, False]
    SentCredentials(SOURCES, "whole").require(job, PLAN, elsewhere())
    usual = replace(JOB, source=Location("s3://src/p/"), destination=Location("s3://dst/q/"))
    sent.require(usual, PLAN, elsewhere("s3"))
    here = SimpleNamespace(runs_on_this_machine=lambda _: True)
    sent.require(job, PLAN, here)
    # As `provision PLAN.json SRC DST` gets it where there is nothing to copy.
    sent.require(job, replace(PLAN, volume_gb=0.0), elsewhere())


@pytest.mark.parametrize(("waited_s", "calls"), [(0, 2), (1799, 2), (1801, 4)])
def test_an_attach_soon_after_the_launch_sends_what_was_tried_before_it(
    waited_s: int, calls: int, asked: list[tuple[Reach, ...]]
) -> None:
    clock, sessions = ManualClock(), FakeSessions("ab")
    sent = SentCredentials(SOURCES, clock=clock.clock)
    # The plan knows the regions, by which AWS is asked.
    job, plan = job_of(recursive=True, region=""), replace(PLAN, dst="aws:cn-north-1")
    sent.require(job, plan, elsewhere())
    assert [reach.store.region for (reach,) in asked] == ["us-east-1", "cn-north-1"]
    clock.advance(waited_s)
    sessions.fleet = replace(sessions.fleet, host="")
    request = TransferRequest(KEY, with_planned_regions(job, plan, SOURCES), sent)
    control_of(sessions).take_over(request, Submit(Tenure("a", 1), ("a",), ("b",)))
    assert len(asked) == calls
    got = [sessions.gateways[node].credentials["access_key_id"] for node in "ab"]
    assert got == [f"limited {calls - 1}", f"limited {calls}"]
    # Renewed ones are fresh.
    sessions.gateways["b"].needs_credentials = {KEY: ["sink"]}
    control_of(sessions).renew_credentials(request, 1)
    assert len(asked) == calls + 1
