"""Braces in all texts of a transfer, in all forms of definitions."""

# No postponed annotations: Dagster reads those of the functions.

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError
from tests.dagster.conftest import Lab
from tests.dagster.test_component import TYPE, all_texts, asset_of, loaded

from skyplane_orchestration.dagster import (
    DagsterSkyplaneTranslator,
    SkyplaneResource,
    SkyplaneTranslatorData,
    build_skyplane_source_asset,
    build_skyplane_sweep_sensor,
    build_skyplane_transfer_asset,
    build_skyplane_transfer_assets,
    skyplane_assets,
)
from skyplane_orchestration.dagster.components.scaffolder import ScaffoldParams
from skyplane_orchestration.dagster.placeholders import filled, filled_url
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location

DAYS = dg.StaticPartitionsDefinition(["mon", "tue"])
GRID = dg.MultiPartitionsDefinition(
    {"day": DAYS, "region": dg.StaticPartitionsDefinition(["eu", "us"])}
)
SINGLE = dg.BackfillPolicy.single_run()

Job = dict[str, Any]


def five_ops(job: Job, partitions: Any, manifest: str | None = None) -> dg.AssetsDefinition:
    return build_skyplane_transfer_asset(
        "copy", partitions_def=partitions, backfill_policy=SINGLE, manifest=manifest, **job
    )


def destinations(job: Job, partitions: Any, manifest: str | None = None) -> dg.AssetsDefinition:
    rest = {name: value for name, value in job.items() if name != "destination"}
    (made,) = build_skyplane_transfer_assets(
        {"copy": job["destination"]},
        partitions_def=partitions,
        backfill_policy=SINGLE,
        manifest=manifest,
        **rest,
    )
    return made


def decorated(
    job: Job, partitions: Any, manifest: str | None = None, **options: Any
) -> dg.AssetsDefinition:
    ends = {end: Location(job[end]) for end in ("source", "destination")}

    @skyplane_assets(
        jobs={"copy": TransferJob(**{**job, **ends})},
        backfill_policy=SINGLE,
        **{"partitions_def": partitions, **options},
    )
    def copies(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
        yield from skyplane.run(context=context, manifest=manifest)

    return copies


def translated(job: Job, partitions: Any, manifest: str | None = None) -> dg.AssetsDefinition:
    class Translator(DagsterSkyplaneTranslator):
        def get_asset_spec(self, data: SkyplaneTranslatorData) -> dg.AssetSpec:
            spec = super().get_asset_spec(data)
            return spec.replace_attributes(partitions_def=partitions)

    return decorated(job, None, manifest, partitions_def=None, translator=Translator())


FORMS = [five_ops, destinations, decorated, translated]


def copied(lab: Lab) -> list[tuple[str, str]]:
    """The ends of all copies, in order."""
    jobs = [job for job, _ in lab.client.of("run")] + [one[1] for one in lab.client.of("transfer")]
    return [(job.source.url, job.destination.url) for job in jobs]


def failure(result: dg.ExecuteInProcessResult) -> str:
    event = next(one for one in result.all_events if one.event_type_value == "STEP_FAILURE")
    data = event.step_failure_data
    return str((data.user_failure_data and data.user_failure_data.description) or data.error)


# ---------------------------------------------------------------- refused when it is made

HERE, THERE, BY_DAY = "s3://a/x/", "s3://b/y/", "s3://b/{partition_key}/"
REGION = "{partition_key.region}"

REFUSED: list[tuple[Any, Job, str]] = [
    (None, {"source": "s3://a/{partition_key}/"}, "partitions_def"),
    (None, {"destination": BY_DAY}, "partitions_def"),
    (None, {"source": "s3://a/{partition_key.region}/"}, "partitions_def"),
    (None, {"include": ("{partition_key}*",)}, "partitions_def"),
    (DAYS, {}, "each partition would copy the same"),
    (DAYS, {"publish_last": ("{partition_key}",)}, "each partition would copy the same"),
    (DAYS, {"exclude": ("{partition_key}/*",)}, "each partition would copy the same"),
    (DAYS, {"source": "file:///a/{partition_key}/../"}, "each partition would copy the same"),
    (DAYS, {"source": f"s3://a/{REGION}/"}, "partition_key.region"),
    (GRID, {}, "partition_key.day"),
    (GRID, {"source": f"s3://a/{REGION}/"}, "partition_key.day"),
    (GRID, {"source": f"s3://a/{REGION}/{{partition_key.dya}}/"}, "partition_key.dya"),
    (GRID, {"source": "s3://a/{partition_key.}/"}, "partition_key."),
    (DAYS, {"source": "s3://a/{partition_key}/", "delete": True}, "copies of others"),
    (GRID, {"source": "s3://a/{partition_key}/", "destination": f"s3://b/{REGION}/",
            "delete": True}, "copies of others"),
    *(
        (DAYS, {"source": f"s3://a/{form}/", "destination": BY_DAY}, "source.url")
        for form in (
            "{partition}", "{partition_Key}", "{ partition_key }", "{partition_key }", "{}",
            "{0}", "{key}", "{asset_key}", "{partition_key!r}", "{partition_key:>9}", "{", "}",
            "{partition_key", "partition_key}", "{{partition_key}", "{partition_key}}",
            "{{partition_key}}", "{{ partition_key }}", "{{ ds }}", "{% if x %}",
            "{partition_key[0]}",
        )
    ),
    *(
        (DAYS, {"destination": BY_DAY, name: ("{partition}",)}, name)
        for name in ("include", "exclude", "publish_last", "files_from")
    ),
    *(
        (DAYS, {"destination": BY_DAY, name: "{partition_key}"}, name)
        for name in ("newer_than", "older_than", "min_size", "max_size", "bwlimit", "max_delete")
    ),
    (DAYS, {"destination": BY_DAY, "newer_than": "{{partition_key}}"}, "newer_than"),
    (DAYS, {"destination": BY_DAY, "limits": Limits(instance_types={"aws": "{partition_key}"})},
     "limits.instance_types.aws"),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("partitions", "job", "clue"), REFUSED)
def test_a_wrong_placeholder_is_refused_when_the_asset_is_made(
    form: Callable[..., Any], partitions: Any, job: Job, clue: str
) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        form({"source": HERE, "destination": THERE, **job}, partitions)
    assert clue in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["endpoint_url", "credential_ref", "options"])
@pytest.mark.parametrize("end", ["source", "destination"])
def test_other_fields_of_a_location_take_no_key(end: str, field: str) -> None:
    text = "http://{partition_key}:9000"
    fields: Job = {field: {"x": text} if field == "options" else text}
    odd = Location("s3://c/{partition_key}/", **fields)
    ends: Job = {"source": Location(HERE), "destination": Location(THERE), end: odd}
    with pytest.raises(ConfigurationInvalid, match=rf"{end}\.{field}.* takes no braces"):
        build_skyplane_transfer_asset("x", partitions_def=DAYS, **ends)


def yaml_of(job: Job, partitions: Any, manifest: str | None = None) -> dict[str, Any]:
    transfer = {
        "name": "copy",
        "source_url": job.pop("source"),
        "destination_url": job.pop("destination"),
        **{name: list(value) if isinstance(value, tuple) else value for name, value in job.items()},
    }
    names = {"type": "static", "partition_keys": ["mon", "tue"]}
    translation = {"translation": {"partitions_def": names}} if partitions else {}
    return {"transfers": [transfer], "manifest": manifest, **translation}


@pytest.mark.parametrize(
    ("partitions", "job", "clue"),
    [
        case
        for case in REFUSED
        # Dagster renders the doubled ones, and has no partitions of several dimensions there.
        if case[0] is not GRID and "limits" not in case[1] and not {"{{", "{%"} & set(str(case[1]))
        and "{{" not in str(case[1]) and "{%" not in str(case[1])
    ] + [
        (DAYS, {"destination": BY_DAY, "manifest": f"s3://m/{name}.parquet"}, "manifest")
        for name in ("one", "{partition}")
    ],
)  # fmt: skip
def test_a_wrong_placeholder_fails_the_load_of_a_component(
    partitions: Any, job: Job, clue: str
) -> None:
    job = {"source": HERE, "destination": THERE, **job}
    attributes = yaml_of(job, partitions, job.pop("manifest", None))
    with (
        pytest.raises(Exception) as caught,
        loaded({"type": TYPE, "attributes": attributes}),
    ):
        pass
    assert clue in all_texts(caught.value)


@pytest.mark.parametrize("form", [five_ops, destinations])
@pytest.mark.parametrize(
    ("partitions", "manifest", "clue"),
    [
        (None, "s3://m/{partition_key}.parquet", "partitions_def"),
        (DAYS, "s3://m/one.parquet", "one manifest"),
        (DAYS, "s3://m/{asset_key}.parquet", "one manifest"),
        (DAYS, "s3://m/{partition}.parquet", "manifest: {partition}"),
        (GRID, f"s3://m/{REGION}.parquet", "one manifest"),
    ],
)
def test_a_wrong_manifest_is_refused(
    form: Callable[..., Any], partitions: Any, manifest: str, clue: str
) -> None:
    destination = BY_DAY if partitions else THERE
    with pytest.raises(ConfigurationInvalid, match=clue):
        form({"source": HERE, "destination": destination}, partitions, manifest)


@pytest.mark.parametrize("text", ["s3://a/{partition_key}/", "s3://a/{day}/", "s3://a/{{ x }}/"])
def test_places_without_partitions_take_no_placeholder(text: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="location: "):
        build_skyplane_source_asset("x", text)
    with pytest.raises(ConfigurationInvalid, match="destinations: "):
        build_skyplane_sweep_sensor(destinations=[Location(text)])
    for name in ("include", "exclude"):
        globs: Job = {name: [text]}
        with pytest.raises(ConfigurationInvalid, match=f"{name}: "):
            build_skyplane_source_asset("x", HERE, **globs)


# ---------------------------------------------------------------- what a run copies


@pytest.mark.parametrize("form", FORMS)
def test_each_dimension_has_a_placeholder(form: Callable[..., Any], lab: Lab) -> None:
    job = {
        "source": f"s3://a/{REGION}/dt={{partition_key.day}}/",
        "destination": "s3://b/{partition_key}/",
        "include": (f"{REGION}-*",),
        "files_from": ("{partition_key.day}.csv",),
    }
    made = form(job, GRID, "s3://m/{asset_key}/{partition_key.day}/{partition_key.region}.parquet")
    assert lab.materialize(
        made, partition_key=dg.MultiPartitionKey({"day": "tue", "region": "eu"})
    ).success
    assert {identity.group for identity in lab.client.of("identity")} == {"tue|eu"}
    range_of_run = {
        "dagster/asset_partition_range_start": "tue|eu",
        "dagster/asset_partition_range_end": "tue|us",
    }
    assert lab.materialize(made, tags=range_of_run).success
    assert copied(lab) == [
        ("s3://a/eu/dt=tue/", "s3://b/tue|eu/"),
        ("s3://a/eu/dt=tue/", "s3://b/tue|eu/"),
        ("s3://a/us/dt=tue/", "s3://b/tue|us/"),
    ]
    *_, last = lab.client.of("transfer") or lab.client.of("run")
    assert (last[-2].include, last[-2].files_from) == (("us-*",), ("tue.csv",))
    assert last[-1] == "s3://m/copy/tue/us.parquet"


@pytest.mark.parametrize("form", FORMS)
def test_the_parts_of_a_date_need_no_code(form: Callable[..., Any], lab: Lab) -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01")
    made = form({"source": "s3://a/dt={partition_key}/", "destination": THERE}, days)
    assert lab.materialize(made, partition_key="2026-01-02").success
    assert copied(lab) == [("s3://a/dt=2026-01-02/", THERE)]


@pytest.mark.parametrize("form", FORMS)
def test_doubled_braces_are_literal(form: Callable[..., Any], lab: Lab) -> None:
    job = {
        "source": "s3://a/{{x}}/",
        "destination": "s3://b/{{{{{{y}}/}}{{/",
        "include": ("{{a,b}}", "{{assets}}", "{{partition}}"),
    }
    assert lab.materialize(form(job, None)).success
    assert copied(lab) == [("s3://a/{x}/", "s3://b/{{{y}/}{/")]
    (one,) = lab.client.of("transfer") or lab.client.of("run")
    assert one[-2].include == ("{a,b}", "{assets}", "{partition}")
    made = form({"source": "s3://a/{{x}}/", "destination": "s3://b/{{{partition_key}}}/"}, DAYS)
    assert lab.materialize(made, partition_key="mon").success
    assert copied(lab)[-1] == ("s3://a/{x}/", "s3://b/{mon}/")


def test_a_component_takes_the_key(lab: Lab) -> None:
    attributes = yaml_of(
        {"source": "s3://a/{partition_key}/", "destination": THERE},
        DAYS,
        "s3://m/{asset_key}/{partition_key}.parquet",
    )
    with asset_of(attributes) as made:
        assert lab.materialize(made, partition_key="tue").success
    ((job, manifest),) = lab.client.of("run")
    assert (job.source.url, manifest) == ("s3://a/tue/", "s3://m/copy/tue.parquet")


def test_a_component_writes_a_literal_brace_as_a_text_of_its_templates() -> None:
    job = {"source": "s3://a/{{ '{{x}}' }}/", "destination": THERE}
    with asset_of(yaml_of(job, None)) as made:
        (spec,) = made.specs
    assert spec.metadata["skyplane/source"] == "s3://a/{{x}}/"


@pytest.mark.parametrize("form", FORMS)
def test_a_run_without_a_partition_copies_nothing(form: Callable[..., Any], lab: Lab) -> None:
    result = lab.materialize(form({"source": HERE, "destination": BY_DAY}, DAYS))
    assert not result.success
    assert "this run has none; launch it for a partition" in failure(result)
    assert set(lab.client.verbs) <= {"identity"}


#: Keys, and what becomes of them in a folder; None: the run fails, and nothing is copied.
KEYS = [
    ("a/b", "a/b"), ("a b", "a b"), (" ", " "), ("*", "*"), ("a|b", "a|b"), ("..a", "..a"),
    ("...", "..."), ("{partition_key}", "{partition_key}"), ("{{x}}", "{{x}}"),
    ("%2e%2e", "%2e%2e"), ("a%2F..%2Fb", "a%2F..%2Fb"), ("~", "~"), ("a?b#c", "a?b#c"),
    ("ä", "ä"), ("s3://c", None),
    ("", None), (".", None), ("..", None), ("/a", None), ("a/", None), ("a//b", None),
    ("a/../b", None), ("../a", None), ("a/..", None), ("a/./b", None), ("/", None),
    ("a\\..\\b", None), ("a\\b", "a\\b"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "folder"), KEYS)
def test_a_key_stays_below_its_folder(key: str, folder: str | None) -> None:
    values = {"partition_key": key}
    if folder is not None:
        found = filled_url("source", "s3://a/x/{partition_key}/", values)
        assert found == f"s3://a/x/{folder}/"
        return
    with pytest.raises(ConfigurationInvalid, match="leads out of its folder"):
        filled_url("source", "s3://a/x/{partition_key}/", values)


@pytest.mark.parametrize("form", [five_ops, decorated])
@pytest.mark.parametrize(
    ("key", "folder", "clue"),
    [
        ("a/%2e b", "a/%2e b", ""),
        ("../a", None, "leads out of its folder"),
        # The empty key is no partition, for Dagster.
        ("", None, "this run has none"),
    ],
)
def test_a_run_copies_below_the_folder_of_its_key(
    form: Callable[..., Any], key: str, folder: str | None, clue: str, lab: Lab
) -> None:
    keys = dg.DynamicPartitionsDefinition(name="keys")
    made = form({"source": "s3://a/x/{partition_key}/", "destination": "s3://b/"}, keys)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("keys", [key])
        result = lab.materialize(made, key, instance=instance)
    assert copied(lab) == ([] if folder is None else [(f"s3://a/x/{folder}/", "s3://b/")])
    assert result.success == (folder is not None)
    if folder is None:
        assert clue in failure(result)
        assert set(lab.client.verbs) <= {"identity"}


@pytest.mark.parametrize(
    ("url", "key", "made"),
    [
        ("gs://{partition_key}/x/", "a", "gs://a/x/"),
        ("gs://{partition_key}/x/", "a/b", None),
        ("gs://b-{partition_key}", "a/b", None),
        ("az://account/{partition_key}/x/", "a/b", None),
        ("az://{partition_key}/c/x/", "a/b", None),
        ("file:///d/{partition_key}/", "a b", "file:///d/a b/"),
        ("file:///d/{partition_key}/../x/", "a/b", None),
        (
            "https://account.blob.core.windows.net/c/{partition_key}/",
            "50%25?a=b#c/ä",
            "https://account.blob.core.windows.net/c/50%2525%3Fa%3Db%23c/%C3%A4/",
        ),
        ("https://{partition_key}.blob.core.windows.net/c/x/", "EU", None),
        ("https://{partition_key}.blob.core.windows.net/c/x/", "a/b", None),
    ],
)
def test_a_key_changes_no_bucket(url: str, key: str, made: str | None) -> None:
    if made is not None:
        assert filled_url("source", url, {"partition_key": key}) == made
        return
    with pytest.raises(ConfigurationInvalid) as caught:
        filled_url("source", url, {"partition_key": key})
    assert "\n" not in str(caught.value)


def test_a_key_in_a_glob_is_no_glob(lab: Lab) -> None:
    keys = dg.StaticPartitionsDefinition(["*", "a[b]?"])
    globs = dict.fromkeys(("include", "exclude", "publish_last"), ("{partition_key}/*",))
    made = five_ops({"source": HERE, "destination": THERE, **globs}, keys)
    for key in keys.get_partition_keys():
        assert lab.materialize(made, key).success
    jobs = [job for _, job, _ in lab.client.of("transfer")]
    assert [job.include for job in jobs] == [("[*]/*",), ("a[[]b][?]/*",)]
    assert all(job.include == job.exclude == job.publish_last for job in jobs)


@pytest.mark.parametrize("form", FORMS)
def test_an_asset_without_partitions_runs_beside_others(form: Callable[..., Any], lab: Lab) -> None:
    """Dagster gives all assets of a run its partition."""
    daily = build_skyplane_transfer_asset(
        "daily", source=HERE, destination=BY_DAY, partitions_def=DAYS
    )
    assets = [form({"source": HERE, "destination": THERE}, None), daily]
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            assets, resources={"skyplane": lab.resource}, partition_key="mon", instance=instance
        )
    assert result.success
    assert set(copied(lab)) == {(HERE, THERE), (HERE, "s3://b/mon/")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("made_with", "given", "job", "clue"),
    [
        (None, DAYS, {}, "each partition would copy the same"),
        (DAYS, None, {"destination": BY_DAY}, "partitions_def"),
    ],
)
def test_partitions_that_change_afterwards_are_checked_in_the_run(
    form: Callable[..., Any], made_with: Any, given: Any, job: Job, clue: str, lab: Lab
) -> None:
    made = form({"source": HERE, "destination": THERE, **job}, made_with)
    changed = made.map_asset_specs(lambda spec: spec.replace_attributes(partitions_def=given))
    result = lab.materialize(changed, partition_key=given and "mon")
    assert not result.success
    assert clue in failure(result)
    assert copied(lab) == []


# ---------------------------------------------------------------- jobs that are made in the run


def in_run(partitions: Any = DAYS, **arguments: Any) -> dg.AssetsDefinition:
    @dg.asset(partitions_def=partitions, backfill_policy=SINGLE)
    def copy(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
        yield from skyplane.run(context, **arguments)

    return copy


def job_to(url: str) -> TransferJob:
    return TransferJob(Location(HERE), Location(url))


@pytest.mark.parametrize(
    ("partitions", "key", "arguments", "clue"),
    [
        (DAYS, "mon", {"job": job_to("s3://b/mon/")}, "each partition would copy the same"),
        (DAYS, "mon", {"job": job_to("s3://b/{day}/")}, "{day}"),
        (DAYS, None, {"job": job_to(BY_DAY)}, "launch it for a partition"),
        (None, None, {"job": job_to(BY_DAY)}, "partitions_def"),
        (DAYS, "mon", {"job": job_to("s3://b/"), "partition_key": "tue"}, "made for 'tue'"),
        (DAYS, "mon", {"partition_key": "mon"}, "give job too"),
        (DAYS, "mon", {"job": job_to(BY_DAY), "manifest": "/m/one"}, "one manifest"),
        (DAYS, "mon", {"job": job_to(BY_DAY), "manifest": "/m/{partition}"}, "{partition}"),
        (DAYS, "mon", {"job": job_to(BY_DAY), "manifest": "/{partition_key}.txt"}, "as .txt"),
    ],
)
def test_a_wrong_job_of_a_run_copies_nothing(
    partitions: Any, key: str | None, arguments: dict[str, Any], clue: str, lab: Lab
) -> None:
    result = lab.materialize(in_run(partitions, **arguments), key)
    assert not result.success
    assert clue in failure(result)
    assert set(lab.client.verbs) <= {"identity"}


def test_a_job_of_a_run_may_be_made_for_its_partition(lab: Lab) -> None:
    assert lab.materialize(in_run(job=job_to(BY_DAY)), "mon").success
    made = in_run(job=job_to("s3://b/monday/"), partition_key="mon", manifest="/m/monday")
    assert lab.materialize(made, "mon").success
    assert copied(lab) == [(HERE, "s3://b/mon/"), (HERE, "s3://b/monday/")]


# ---------------------------------------------------------------- unknown fields


def test_the_resource_refuses_unknown_fields() -> None:
    unknown: dict[str, Any] = {"leese_s": 5}
    with pytest.raises(ValidationError, match="leese_s"):
        SkyplaneResource(**unknown)
    with pytest.raises(ValidationError, match="leese_s"):
        ScaffoldParams(**unknown)


@pytest.mark.parametrize(
    "run_config",
    [
        {"resources": {"skyplane": {"config": {"leese_s": 5}}}},
        {"ops": {"copy": {"ops": {"plan": {"config": {"min_throughput": 5}}}}}},
    ],
)
def test_run_config_refuses_unknown_fields(run_config: dict[str, Any]) -> None:
    resource = SkyplaneResource.configure_at_launch()
    made = five_ops({"source": HERE, "destination": THERE}, None)
    job = dg.define_asset_job("copies", [made.key])
    definitions = dg.Definitions(assets=[made], jobs=[job], resources={"skyplane": resource})
    with pytest.raises(dg.DagsterInvalidConfigError, match="unexpected config entry"):
        dg.validate_run_config(definitions.resolve_job_def("copies"), run_config)


def test_texts_are_filled_in_one_pass(tmp_path: Path) -> None:
    values = {"partition_key": "{asset_key}", "asset_key": "{{partition_key}}"}
    text = f"{tmp_path}/{{asset_key}}/{{partition_key}}"
    assert filled("x", text, values) == f"{tmp_path}/{{{{partition_key}}}}/{{asset_key}}"
