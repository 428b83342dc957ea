"""What each operator asks of the client, returns, and raises."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import (
    DAG,
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    Asset,
    BaseOperator,
    TaskGroup,
)
from tests.transfer import samples

from skyplane_orchestration import operators
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    DestinationsFailed,
    PlanInfeasible,
    SkyplaneError,
    Stopped,
    StoreUnavailable,
    TeardownIncomplete,
    TransferFailed,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.sweep_report import (
    SweepReport,
    SweptFleet,
    SweptPlace,
    SweptTransfer,
    SweptUpload,
)
from skyplane_orchestration.operators import (
    SkyplanePlanOperator,
    SkyplaneProvisionOperator,
    SkyplaneSweepOperator,
    SkyplaneTeardownOperator,
    SkyplaneTransferOperator,
)
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.operators.job import SkyplaneJobOperator

ENDS: dict[str, Any] = {"source_url": "s3://src/", "destination_url": "s3://dst/"}

CLASSES = [
    value
    for name in operators.__all__
    if isinstance(value := getattr(operators, name), type) and issubclass(value, BaseOperator)
]


def plan_document(hook: Any, context: Any) -> dict[str, Any]:
    return SkyplanePlanOperator(task_id="plan", **ENDS).execute(context)


def fleet_document(hook: Any, context: Any) -> dict[str, Any]:
    plan = plan_document(hook, context)
    return SkyplaneProvisionOperator(task_id="provision", plan=plan).execute(context)


@pytest.mark.parametrize("cls", CLASSES)
def test_template_fields_are_arguments_kept_under_their_name(cls: type[SkyplaneOperator]) -> None:
    known: set[str] = set()
    for base in cls.__mro__:
        known |= set(inspect.signature(base).parameters)
    assert set(cls.template_fields) <= known
    required: dict[str, Any] = {"plan": {}} if cls is SkyplaneProvisionOperator else {}
    if issubclass(cls, SkyplaneJobOperator):
        required |= ENDS
    assert set(cls.template_fields) <= set(vars(cls(task_id="t", **required)))


@pytest.mark.parametrize("cls", CLASSES)
def test_arguments_are_by_keyword_only(cls: type[SkyplaneOperator]) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(cls).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


def test_plan_checks_the_destination_first(hook: Any, context: Any) -> None:
    document = plan_document(hook, context)
    assert TransferPlan.from_dict(document).dst == "aws:eu-west-3"
    assert hook.clients["default"].verbs == ["check", "plan"]


def test_a_plan_without_work_has_no_volume(
    hook: Any, context: Any, task_log: Callable[[], str]
) -> None:
    hook.client(context, "default").is_unchanged = True
    plan = TransferPlan.from_dict(plan_document(hook, context))
    assert (plan.needs_gateways, plan.volume_gb, plan.cost.total_usd) == (False, 0, 0)
    assert "there is nothing to copy, so no gateways are started" in task_log()


def test_provision_returns_the_fleet(hook: Any, context: Any) -> None:
    fleet = Fleet.from_dict(fleet_document(hook, context))
    assert fleet.key == hook.clients["default"].identity.fleet_key()


def test_provision_may_plan_again_for_the_job_of_its_arguments(hook: Any, context: Any) -> None:
    """Without a job its plan is fixed."""
    plan = plan_document(hook, context)
    for more in ({}, ENDS, {"job": TransferJob(Location("s3://src/"), Location("s3://dst/"))}):
        SkyplaneProvisionOperator(task_id="p", plan=plan, **more).execute(context)
    jobs = [job for _, job in hook.clients["default"].of("provision")]
    ends = Location("s3://src/"), Location("s3://dst/")
    assert jobs == [None, TransferJob(*ends), TransferJob(*ends)]


def test_transfer_on_a_fleet(hook: Any, context: Any) -> None:
    operator = SkyplaneTransferOperator(
        task_id="transfer", fleet=fleet_document(hook, context), manifest="s3://dst/m", **ENDS
    )
    result = TransferResult.from_dict(operator.execute(context))
    assert result.copied == 30
    client = hook.clients["default"]
    ((fleet_key, job, manifest),) = client.of("transfer")
    assert (fleet_key, manifest) == (client.identity.fleet_key(), "s3://dst/m")
    assert job.source.url == "s3://src/"


def test_transfer_without_a_fleet_is_one_task(hook: Any, context: Any) -> None:
    operator = SkyplaneTransferOperator(task_id="copy", **ENDS)
    assert operator.execute(context)["copied"] == 30
    # A fleet of its own: two such tasks of one run must not share gateways.
    assert hook.clients["copy"].verbs == ["run"]


@pytest.mark.parametrize("place", ["auto", "always", "never"])
def test_one_task_says_where_its_gateways_run(hook: Any, context: Any, place: Any) -> None:
    SkyplaneTransferOperator(task_id="copy", gateways=place, **ENDS).execute(context)
    assert hook.gateways == place


def test_an_unknown_place_of_gateways_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="gateways must be one of auto, always, never"):
        SkyplaneTransferOperator(task_id="copy", gateways="here", **ENDS)  # type: ignore[arg-type]


def test_transfer_whose_fleet_is_missing_does_not_build_one(hook: Any, context: Any) -> None:
    operator = SkyplaneTransferOperator(task_id="t", fleet={"rendered": "later"}, **ENDS)
    operator.fleet = None  # What the template of a provision task without a result renders to.
    with pytest.raises(AirflowFailException, match="left no fleet"):
        operator.execute(context)
    assert hook.clients["default"].calls == []


def test_outlets_get_the_facts(hook: Any, context: Any) -> None:
    asset = Asset("x-test://dst/copy")
    operator = SkyplaneTransferOperator(task_id="copy", outlets=[asset], **ENDS)
    operator.execute(context)
    facts = context["outlet_events"][asset].extra
    assert facts["bytes"] == 1000
    assert facts["outputs"][0]["namespace"] == "s3://dst"
    assert facts["gateways"] == "local"
    assert facts["planned_cost"]["total_usd"] == 6.0


def test_the_log_names_the_machine_and_the_cost(
    hook: Any, context: Any, task_log: Callable[[], str]
) -> None:
    here = "gateways are processes of this machine, and all bytes pass through it"
    fleet = fleet_document(hook, context)
    assert f"1 gateway up in 1.5 s; {here}" in task_log()
    SkyplaneTransferOperator(task_id="transfer", fleet=fleet, **ENDS).execute(context)
    text = task_log()
    assert "cost $6.00 at the plan's prices" in text
    assert here in text


def test_failed_objects_fail_the_task_and_are_named(
    hook: Any, context: Any, task_log: Callable[[], str]
) -> None:
    operator = SkyplaneTransferOperator(task_id="copy", **ENDS)
    failed = samples.result(failed=25)
    error = TransferFailed("25 of 30 objects failed", result=failed, is_permanent=False)
    hook.client(context, "copy").fail("run", error)
    with pytest.raises(AirflowException, match="25 of 30") as caught:
        operator.execute(context)
    assert not isinstance(caught.value, AirflowFailException)
    said = task_log()
    assert "s3://src/p/0: it is gone (not-found)" in said
    assert "s3://src/p/19:" in said
    assert "s3://src/p/20:" not in said
    assert "and 5 more" in said
    assert context["pushed"]["failed_transfer"] == failed.to_dict()


def test_a_failed_transfer_logs_how_to_resume(
    hook: Any, context: Any, task_log: Callable[[], str]
) -> None:
    left = samples.result(failed=25, resume_handle="skyplane-resume:abc")
    operator = SkyplaneTransferOperator(task_id="copy", **ENDS)
    error = TransferFailed("25 of 30 objects failed", result=left)
    hook.client(context, "copy").fail("run", error)
    with pytest.raises(AirflowException):
        operator.execute(context)
    assert f"resumes transfer {left.transfer_key}; if no try is left, clear the task" in task_log()
    assert "skyplane-resume:" not in task_log(), "a handle has 1,400 characters"
    assert context["pushed"]["failed_transfer"]["resume_handle"] == "skyplane-resume:abc"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PlanInfeasible("too much"), AirflowFailException),
        (StoreUnavailable("try later"), AirflowException),
    ],
)
def test_only_temporary_errors_are_retried(
    hook: Any, context: Any, error: SkyplaneError, kind: type[Exception]
) -> None:
    hook.client(context, "default").fail("plan", error)
    with pytest.raises(AirflowException, match=f"{error.code}: {error}") as raised:
        SkyplanePlanOperator(task_id="plan", **ENDS).execute(context)
    assert type(raised.value) is kind


@pytest.mark.parametrize(("state", "is_final"), [("cancelled", False), ("failed", True)])
def test_a_transfer_cancelled_by_another_try_is_retried(
    hook: Any, context: Any, state: Any, is_final: bool
) -> None:
    left = samples.result(failed=25, state=state)
    error = TransferFailed("the transfer was cancelled", result=left, is_permanent=True)
    hook.client(context, "copy").fail("run", error)
    with pytest.raises(AirflowException) as raised:
        SkyplaneTransferOperator(task_id="copy", **ENDS).execute(context)
    assert isinstance(raised.value, AirflowFailException) == is_final


def test_bad_arguments_are_not_retried(hook: Any, context: Any) -> None:
    operator = SkyplanePlanOperator(task_id="plan", **ENDS)
    operator.source_url = None
    with pytest.raises(AirflowFailException, match="source_url is missing"):
        operator.execute(context)


def test_teardown_by_document(hook: Any, context: Any, task_log: Callable[[], str]) -> None:
    fleet = fleet_document(hook, context)
    returned = SkyplaneTeardownOperator(task_id="down", fleet=fleet).execute(context)
    assert returned == {"stopped": ["aws:eu-west-3/0"]}
    assert hook.clients["default"].calls[-1] == ("teardown", Fleet.from_dict(fleet))
    said = task_log()
    assert "end of the log of aws:eu-west-3/0" in said
    assert "line 99" in said
    assert "line 59" not in said


@pytest.mark.parametrize("document", [None, {}, {"schema_version": 99}])
def test_teardown_without_a_document_goes_by_the_key(
    hook: Any, context: Any, document: dict[str, Any] | None
) -> None:
    SkyplaneTeardownOperator(task_id="down", fleet=document).execute(context)
    client = hook.clients["default"]
    assert client.calls == [("teardown", client.identity.fleet_key())]


def test_teardown_that_is_not_complete_fails(hook: Any, context: Any) -> None:
    error = TeardownIncomplete("aws:eu-west-3/0 is still there")
    hook.client(context, "default").fail("teardown", error)
    with pytest.raises(AirflowException, match="still there"):
        SkyplaneTeardownOperator(task_id="down").execute(context)


def test_sweep(hook: Any, context: Any) -> None:
    client = hook.client(context, "default")
    client.swept = SweepReport((SweptFleet("f1", "past its hard end", ("n",)),), (), dry_run=True)
    operator = SkyplaneSweepOperator(task_id="sweep", report_only=True, older_than_s=60)
    returned = operator.execute(context)
    assert client.of("sweep") == [
        {
            "dry_run": True,
            "older_than_s": 60,
            "destinations": [],
            "orphaned_uploads": False,
            "recursive": True,
        }
    ]
    assert returned["orphans"][0]["key"] == "f1"
    left = SweptFleet("f2", "past its hard end", ("n",), error="would not end")
    client.swept = SweepReport((left,), (), dry_run=False)
    with pytest.raises(AirflowException, match="fleet f2: would not end"):
        SkyplaneSweepOperator(task_id="sweep").execute(context)


def test_sweep_of_destinations(hook: Any, context: Any) -> None:
    client = hook.client(context, "default")
    upload = SweptUpload("s3://a/x", "id", 1.0, "kept")
    gone = SweptTransfer("s3://a/", "ab", 1, 1.0, "removed")
    place = SweptPlace("s3://a/", (gone,), (upload,) * 200)
    client.swept = SweepReport((), (), dry_run=False, places=(place,))
    operator = SkyplaneSweepOperator(
        task_id="sweep",
        destinations=["s3://a/", {"url": "s3://b/"}, Location("s3://c/", credential_ref="env:C")],
        destination_conn_id="aws_paris",
        destination_endpoint="http://minio:9000",
        orphaned_uploads=True,
        recursive=False,
    )
    (document,) = operator.execute(context)["destinations"]
    assert (len(document["transfers"]), len(document["uploads"]), document["more"]) == (1, 100, 100)
    paris = "airflow:aws_paris"
    (given,) = client.of("sweep")
    assert given == {
        "dry_run": False,
        "older_than_s": None,
        "destinations": [
            Location("s3://a/", endpoint_url="http://minio:9000", credential_ref=paris),
            Location("s3://b/", credential_ref=paris),
            Location("s3://c/", credential_ref="env:C"),
        ],
        "orphaned_uploads": True,
        "recursive": False,
    }
    place = SweptPlace("s3://a/", error="no such bucket")
    client.swept = SweepReport((), (), dry_run=False, places=(place,))
    with pytest.raises(AirflowException, match="s3://a/: no such bucket"):
        operator.execute(context)


def test_a_sweeps_destinations_may_come_from_a_template(hook: Any, context: Any) -> None:
    client = hook.client(context, "default")
    SkyplaneSweepOperator(task_id="one", destinations="s3://a/").execute(context)
    (given,) = client.of("sweep")
    assert given["destinations"] == [Location("s3://a/")]
    with pytest.raises(ConfigurationInvalid, match=r"destinations\[0\] must be"):
        SkyplaneSweepOperator(task_id="two", destinations=[cast(Any, 7)])


def test_the_default_fleet_name_is_the_groups_id() -> None:
    with DAG(dag_id="d", schedule=None), TaskGroup("outer"), TaskGroup("inner"):
        inside = SkyplaneProvisionOperator(task_id="p", plan={})
        named = SkyplaneTeardownOperator(task_id="t", fleet_name="mine")
    assert inside.default_fleet_name == "outer.inner"
    assert named.fleet_name == "mine"


def test_another_fleet_name_is_another_fleet(hook: Any, context: Any) -> None:
    SkyplaneTeardownOperator(task_id="t", fleet_name="mine").execute(context)
    assert set(hook.clients) == {"mine"}


# -- being killed


@pytest.mark.parametrize(("options", "cancels"), [({}, True), ({"cancel_on_kill": False}, False)])
def test_on_kill_ends_the_task_and_cancels_the_transfer_unless_it_shall_run(
    hook: Any, context: Any, options: dict[str, Any], cancels: bool
) -> None:
    operator = SkyplaneTransferOperator(
        task_id="t", fleet=fleet_document(hook, context), **options, **ENDS
    )
    client = hook.clients["default"]
    client.meanwhile = operator.on_kill
    with pytest.raises(AirflowException, match="was killed"):
        operator.execute(context)
    cancelled = [(client.identity.fleet_key(), samples.KEY)]
    assert client.of("cancel") == cancelled * cancels


@pytest.mark.parametrize("form", ["one task", "on a fleet", "deferrable"])
@pytest.mark.parametrize("state", ["running", "failed"])
def test_a_task_that_is_cut_off_leaves_what_was_seen_last(
    hook: Any, context: Any, form: str, state: Any
) -> None:
    """Airflow raises it at `execution_timeout`, also while the transfer is being stopped."""
    more: dict[str, Any] = {"fleet_name": "default", "execution_timeout": timedelta(seconds=60)}
    if form == "on a fleet":
        more["fleet"] = fleet_document(hook, context)
    operator = SkyplaneTransferOperator(
        task_id="t", deferrable=form == "deferrable", **more, **ENDS
    )
    client = hook.client(context, "default")
    context["ti"].start_date = datetime(2100, 1, 1, tzinfo=UTC)
    error = Stopped("the task ends").to_dict() if state == "failed" else None
    client.status = samples.status(state, copied=7, copied_bytes=70, error=error)

    def cut_off() -> None:
        raise AirflowTaskTimeout("Timeout")

    client.meanwhile = cut_off
    with pytest.raises(AirflowTaskTimeout):
        operator.execute(context)
    left = context["pushed"]["failed_transfer"]
    assert (left["state"], left["copied"], left["error_code"]) == ("failed", 7, "stopped")
    reason = "the task ends" if error else "the task has an execution_timeout of 0:01:00"
    assert left["error"] == reason
    assert context["pushed"]["lineage"]["copied"] == 7


def test_a_task_that_is_cut_off_early_leaves_nothing(hook: Any, context: Any) -> None:
    client = hook.client(context, "t")

    def cut_off() -> None:
        raise AirflowTaskTimeout("Timeout")

    client.meanwhile = cut_off
    with pytest.raises(AirflowTaskTimeout):
        SkyplaneTransferOperator(task_id="t", **ENDS).execute(context)
    assert context["pushed"] == {}


def test_on_kill_does_not_stop_a_teardown(hook: Any, context: Any) -> None:
    operator = SkyplaneTeardownOperator(task_id="down")
    hook.client(context, "default").meanwhile = operator.on_kill
    assert operator.execute(context) == {"stopped": ["aws:eu-west-3/0"]}


@pytest.mark.parametrize("form", ["one task", "provision"])
def test_on_kill_of_tasks_that_undo_themselves_only_ends_the_task(
    hook: Any, context: Any, form: str
) -> None:
    """The exception itself makes the client take down what it has brought up."""
    operator: SkyplaneOperator
    if form == "one task":
        operator = SkyplaneTransferOperator(task_id="t", fleet_name="default", **ENDS)
    else:
        plan = plan_document(hook, context)
        operator = SkyplaneProvisionOperator(task_id="t", plan=plan)
    client = hook.client(context, "default")
    client.meanwhile = operator.on_kill
    with pytest.raises(AirflowException, match="was killed"):
        operator.execute(context)
    assert "cancel" not in client.verbs


def test_on_kill_after_the_end_does_nothing(hook: Any, context: Any) -> None:
    operator = SkyplaneTransferOperator(
        task_id="transfer", fleet=fleet_document(hook, context), **ENDS
    )
    operator.on_kill()
    operator.execute(context)
    operator.on_kill()
    assert "cancel" not in hook.clients["default"].verbs


def test_the_log_says_if_a_transfer_was_joined(
    hook: Any, context: Any, task_log: Callable[[], str]
) -> None:
    fleet = fleet_document(hook, context)
    hook.clients["default"].joined = True
    SkyplaneTransferOperator(task_id="t", fleet=fleet, **ENDS).execute(context)
    assert "joined transfer" in task_log()


def test_one_task_with_nothing_to_do_needs_no_fleet(
    hook: Any,
    context: Any,
    task_log: Callable[[], str],
) -> None:
    asset = Asset("s3://dst/")
    operator = SkyplaneTransferOperator(task_id="t", fleet_name="f", outlets=[asset], **ENDS)
    client = hook.client(context, "f")
    client.result = samples.result(epoch=0, copied=0, skipped=30)
    assert operator.execute(context)["skipped"] == 30
    facts = context["outlet_events"][asset].extra
    assert (facts["copied"], facts["grid"], facts["instances"]) == (0, None, {})
    assert "nothing to copy: 30 objects unchanged" in task_log()


@pytest.mark.parametrize("kind", [SkyplanePlanOperator, SkyplaneTransferOperator])
def test_the_first_line_of_a_log_names_both_ends(
    hook: Any, context: Any, task_log: Callable[[], str], kind: type[SkyplaneOperator]
) -> None:
    kind(task_id="t", **ENDS).execute(context)
    said = task_log()
    before, found, _ = said.partition("copying s3://src/ to s3://dst/")
    assert found
    assert "Gbit/s" not in before


PLACES = ["s3://one/", "s3://two/"]


def replicate(**more: Any) -> SkyplaneTransferOperator:
    ends = {"source_url": "s3://src/", "destinations": PLACES}
    return SkyplaneTransferOperator(task_id="replicate", **{**ends, **more})


def test_several_destinations_return_a_result_for_each(hook: Any, context: Any) -> None:
    outlets = [Asset(url) for url in PLACES]
    found = replicate(outlets=outlets).execute(context)
    assert list(found) == PLACES
    assert [found[url]["destination"] for url in PLACES] == PLACES
    ((job, further),) = hook.clients["replicate"].of("run_to_all")
    assert (job.destination.url, [one.url for one in further]) == (PLACES[0], PLACES[1:])
    facts = context["pushed"]["lineage"]
    assert [row["uri"] for row in facts["outputs"]] == PLACES
    assert facts["bytes"] == sum(row["bytes"] for row in facts["outputs"])
    own = [context["outlet_events"][outlet].extra["outputs"][0]["uri"] for outlet in outlets]
    assert own == PLACES


@pytest.mark.parametrize("regions", [("", ""), ("aws:a", ""), ("", "aws:b"), ("aws:a", "aws:b")])
@pytest.mark.parametrize("fails", [False, True])
def test_facts_of_each_destination_name_its_own_plan(
    hook: Any, context: Any, regions: tuple[str, str], fails: bool
) -> None:
    """A destination that has everything has no plan: those of the others say nothing of it."""
    client = hook.client(context, "replicate")
    client.regions = {url: region for url, region in zip(PLACES, regions, strict=True) if region}
    outlets = [Asset(url) for url in PLACES]
    if fails:
        # In the order in which they ended.
        results = {url: client.result_to(url, samples.result()) for url in reversed(PLACES)}
        client.fail("run_to_all", DestinationsFailed.of(results, {PLACES[1]: Stopped("late")}))
    with pytest.raises(AirflowException) if fails else nullcontext():
        replicate(outlets=outlets).execute(context)
    of_all = context["pushed"]["lineage"]
    assert tuple(row["region"] for row in of_all["outputs"]) == regions
    assert of_all["transfer_key"] == client.key_of(PLACES[0])
    for outlet, region in zip(outlets, regions, strict=True):
        own = context["outlet_events"][outlet].extra
        assert own["outputs"][0]["region"] == region
        has_plan = bool(own["grid"]), bool(own["instances"]), own["planned_usd_per_gb"] > 0
        assert set(has_plan) == {region != ""}
    assert bool(of_all["grid"]) == any(regions)


@pytest.mark.parametrize("failed", [[PLACES[0]], [PLACES[1]], PLACES])
def test_the_lineage_names_destinations_that_left_no_result(
    hook: Any, context: Any, failed: list[str]
) -> None:
    client = hook.client(context, "replicate")
    results = {url: client.result_to(url, samples.result()) for url in PLACES if url not in failed}
    errors = {url: StoreUnavailable("down") for url in failed}
    client.fail("run_to_all", DestinationsFailed.of(results, errors))
    operator = replicate(outlets=[Asset("s3://one/")])
    with pytest.raises(AirflowException):
        operator.execute(context)
    lineage = operator.get_openlineage_facets_on_failure(None)
    assert [row.namespace for row in lineage.outputs] == ["s3://one", "s3://two"]
    for url, row in zip(PLACES, lineage.outputs, strict=True):
        if url not in failed:
            assert row.outputFacets["outputStatistics"].size == samples.result().copied_bytes
        elif results:
            assert row.outputFacets["outputStatistics"].size == 0
    if results:
        (read,) = lineage.inputs
        assert read.inputFacets["inputStatistics"].size == samples.result().copied_bytes
        assert lineage.run_facets["skyplane"].state == "failed"
        assert context["pushed"]["lineage"]["state"] == "failed"


def test_the_start_names_every_destination(hook: Any) -> None:
    outputs = replicate().get_openlineage_facets_on_start().outputs
    assert [row.namespace for row in outputs] == ["s3://one", "s3://two"]


@pytest.mark.parametrize("is_given", [True, False])
def test_the_facts_of_a_failed_transfer_have_the_plan_of_its_fleet(
    hook: Any, context: Any, is_given: bool
) -> None:
    fleet = fleet_document(hook, context) if is_given else None
    operator = SkyplaneTransferOperator(task_id="copy", fleet=fleet, **ENDS)
    client = cast("Any", operator.client(context))
    error = TransferFailed("no", result=samples.result(state="failed"))
    client.fail("transfer" if is_given else "run", error)
    with pytest.raises(AirflowException):
        operator.execute(context)
    assert context["pushed"]["lineage"]["grid"]


def test_metrics_of_several_destinations_have_the_region_of_each(
    hook: Any, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = hook.client(context, "replicate")
    client.regions = {"s3://one/": "aws:a", "s3://two/": "aws:b", "s3://three/": "aws:a"}
    own = replace(samples.result().this_try, copied=2, copied_bytes=700)
    client.result = replace(samples.result(), this_try=own)
    counted: list[tuple[str, int, str]] = []
    monkeypatch.setattr(
        "airflow.providers.common.compat.sdk.Stats.incr",
        lambda name, count, tags: counted.append((name, count, tags["dst"])),
    )
    gauges: dict[str, float] = {}
    monkeypatch.setattr(
        "airflow.providers.common.compat.sdk.Stats.gauge",
        lambda name, value, tags: gauges.update({f"{name} {tags['dst']}": value}),
    )
    replicate(destinations=["s3://one/", "s3://two/", "s3://three/"]).execute(context)
    assert [row for row in counted if row[0] == "skyplane.transfer.bytes"] == [
        ("skyplane.transfer.bytes", 1400, "aws.a"),
        ("skyplane.transfer.bytes", 700, "aws.b"),
    ]
    costs = [gauges[f"skyplane.transfer.cost_usd {tag}"] for tag in ("aws.a", "aws.b")]
    assert costs == [2 * samples.result().cost.total_usd, samples.result().cost.total_usd]


def test_a_destination_that_fails_fails_the_task_and_all_results_are_kept(
    hook: Any, context: Any
) -> None:
    results = {PLACES[0]: samples.result()}
    error = DestinationsFailed.of(results, {PLACES[1]: StoreUnavailable("down")})
    hook.client(context, "replicate").fail("run_to_all", error)
    with pytest.raises(AirflowException, match=r"1 of 2 destinations failed: s3://two/: down"):
        replicate().execute(context)
    pushed = context["pushed"]["failed_transfer"]
    assert TransferResult.from_dict(pushed[PLACES[0]]) == samples.result()
    assert pushed[PLACES[1]]["error"]["message"] == "down"


def test_a_destination_may_have_a_region_and_templates(hook: Any, context: Any) -> None:
    places = [{"url": "s3://{{ ds }}/", "region": "aws:eu-west-3"}, Location("s3://two/")]
    operator = replicate(destinations=places)
    operator.render_template_fields(cast("Any", {**context, "ds": "one"}))
    operator.execute(context)
    ((job, further),) = hook.clients["replicate"].of("run_to_all")
    assert job.destination == Location("s3://one/", "aws:eu-west-3")
    assert further == [Location("s3://two/")]
