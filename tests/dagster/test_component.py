"""`SkyplaneTransferComponent`: the fields of a `defs.yaml`, and the assets that they make."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
import yaml
from dagster.components.resolved.errors import ResolutionException
from dagster.components.testing import create_defs_folder_sandbox
from pydantic import ValidationError

from skyplane_orchestration.dagster import SkyplaneTransferComponent
from skyplane_orchestration.dagster.components import TransferModel
from skyplane_orchestration.dagster.components.scaffolder import RESOURCE
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import (
    TransferJob,
)
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab

TYPE = "skyplane_orchestration.dagster.SkyplaneTransferComponent"
PARIS: dict[str, Any] = {
    "name": "orders_paris",
    "source_url": "s3://sydney/orders/",
    "destination_url": "gs://paris/orders/",
}
TOKYO = {**PARIS, "name": "orders_tokyo", "destination_url": "s3://tokyo/orders/"}


@contextmanager
def loaded(document: dict[str, Any]) -> Iterator[dg.Definitions]:
    """The definitions of a project with this `defs.yaml`."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=SkyplaneTransferComponent, defs_yaml_contents=document
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, SkyplaneTransferComponent)
            yield defs


@contextmanager
def asset_of(attributes: dict[str, Any], **more: Any) -> Iterator[dg.AssetsDefinition]:
    with loaded({"type": TYPE, "attributes": attributes, **more}) as defs:
        yield _asset(defs)


def _asset(defs: dg.Definitions) -> dg.AssetsDefinition:
    (made,) = defs.assets or ()
    assert isinstance(made, dg.AssetsDefinition)
    return made


def test_a_run_copies_the_selected_transfers(lab: Lab) -> None:
    attributes = {
        "transfers": [PARIS, TOKYO],
        "manifest": "/manifests/{asset_key}.parquet",
        "gateways": "never",
    }
    with asset_of(attributes) as made:
        assert lab.materialize(made, selection=["orders_tokyo"]).success
    ((job, manifest),) = lab.client.of("run")
    assert (job.destination.url, manifest) == (
        "s3://tokyo/orders/",
        "/manifests/orders_tokyo.parquet",
    )
    assert lab.client.places == ["never"]


def test_translation_and_op_have_dagsters_names() -> None:
    daily = {"source_url": "s3://sydney/orders/{partition_key}/"}
    attributes = {
        "transfers": [PARIS | daily, TOKYO | daily],
        "max_retries": 2,
        "op": {"pool": "skyplane", "tags": {"cpu": "2"}, "backfill_policy": {"type": "single_run"}},
        "translation": {
            "key_prefix": "lake",
            "group_name": "replication",
            "description": "To {{ data.job.destination.url }}",
            "tags": {"city": "{{ data.name.partition('_')[2] }}"},
            "partitions_def": {"type": "daily", "start_date": "2026-01-01"},
        },
    }
    with asset_of(attributes) as made:
        specs = {spec.key.to_user_string(): spec for spec in made.specs}
    assert list(specs) == ["lake/orders_paris", "lake/orders_tokyo"]
    paris = specs["lake/orders_paris"]
    assert (paris.group_name, paris.tags["city"]) == ("replication", "paris")
    assert paris.description == "To gs://paris/orders/"
    assert isinstance(made.partitions_def, dg.DailyPartitionsDefinition)
    assert made.op.name == "lake__orders_paris__transfers"
    assert (made.op.pool, made.op.tags["cpu"]) == ("skyplane", "2")
    assert made.op.retry_policy == dg.RetryPolicy(max_retries=2)
    assert made.backfill_policy == dg.BackfillPolicy.single_run()


@pytest.mark.skipif(
    dg.__version__.startswith("1.11."),
    reason="Dagster 1.11 looks for the resources of an op before it merges those of the project",
)
def test_post_processing_changes_the_assets() -> None:
    processing = {"assets": [{"target": "*", "attributes": {"owners": ["team:data"]}}]}
    with asset_of({"transfers": [PARIS]}, post_processing=processing) as made:
        (spec,) = made.specs
    assert list(spec.owners) == ["team:data"]


def test_templates_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKET", "lyon")
    transfer = {**PARIS, "destination_url": "s3://{{ env.BUCKET }}/dt={partition_key}/"}
    days = {"partitions_def": {"type": "daily", "start_date": "2026-01-01"}}
    with asset_of({"transfers": [transfer], "translation": days}) as made:
        (spec,) = made.specs
    assert spec.metadata["dagster/uri"] == "s3://lyon/dt={partition_key}/"


def test_a_transfer_without_options_has_the_defaults_of_a_job() -> None:
    job = TransferModel(**PARIS).job()
    assert job == TransferJob(Location("s3://sydney/orders/"), Location("gs://paris/orders/"))


@pytest.mark.parametrize(
    ("attributes", "clue"),
    [
        ({"transfers": [{**PARIS, "max_cost_usd": 1, "deadline_s": 1}]}, "give one objective"),
        ({"transfers": [PARIS, PARIS]}, "the same name twice: orders_paris"),
        ({"transfers": []}, "at least 1 item"),
        ({"transfers": [{**PARIS, "conflicts": "skip"}]}, "conflicts"),
        ({"transfers": [PARIS], "gateways": "inside"}, "'always'"),
        ({"transfers": [PARIS], "manifest": "/{asset_key}.txt"}, "cannot be written as .txt"),
        ({"transfers": [PARIS], "manifets": "/m"}, "manifets"),
        ({"transfers": [PARIS], "op": {"poool": "x"}}, "poool"),
        ({"transfers": [PARIS], "translation": {"partitions": "x"}}, "partitions"),
    ],
)
def test_what_is_wrong_fails_the_load(attributes: dict[str, Any], clue: str) -> None:
    """Dagster's error has ours as its cause; its class is not public."""
    with (
        pytest.raises(Exception) as caught,
        loaded({"type": TYPE, "attributes": attributes}),
    ):
        pass
    assert clue in all_texts(caught.value)


def all_texts(error: BaseException | None) -> str:
    """The messages of an error and of its causes."""
    return "" if error is None else f"{error}\n{all_texts(error.__cause__ or error.__context__)}"


def test_the_scaffolder_writes_a_project_that_loads() -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=SkyplaneTransferComponent,
            scaffold_params={"name": "clicks", "source_url": "s3://sydney/clicks/"},
        )
        written = yaml.safe_load((path / "defs.yaml").read_text())
        (transfer,) = written["attributes"]["transfers"]
        assert transfer["name"] == "clicks"
        assert transfer["destination_url"].startswith("s3://")
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            made = _asset(defs)
    assert made.key == dg.AssetKey("clicks")


def test_a_scaffolded_project_has_all_that_its_assets_need() -> None:
    with create_defs_folder_sandbox() as sandbox:
        for name in ("replication", "deep/down/clicks"):
            sandbox.scaffold_component(
                component_cls=SkyplaneTransferComponent,
                defs_path=name,
                scaffold_params={"name": Path(name).name},
            )
        written = [
            path for path in sandbox.defs_folder_path.rglob("*.py") if path.stem == "skyplane"
        ]
        assert written == [sandbox.defs_folder_path / "skyplane.py"]
        with sandbox.build_all_defs() as defs:
            dg.Definitions.validate_loadable(defs)
            assert {sensor.name for sensor in defs.sensors or ()} == {
                "skyplane_cleanup",
                "skyplane_sweep",
            }


@pytest.mark.parametrize("place", ["defs/resources.py", "definitions.py"])
def test_a_project_that_has_the_resource_keeps_its_own(place: str) -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.defs_folder_path.parent / place
        path.write_text(RESOURCE)
        sandbox.scaffold_component(component_cls=SkyplaneTransferComponent)
        assert not (sandbox.defs_folder_path / "skyplane.py").exists()


def test_dg_lists_the_component(tmp_path: Path) -> None:
    dg_command = Path(sys.executable).with_name("dg")
    if not dg_command.exists():
        pytest.skip("dagster-dg-cli is not installed; the lines of Dagster of the matrix have it")
    project = tmp_path / "project"
    (project / "src/project/defs").mkdir(parents=True)
    for folder in ("src/project", "src/project/defs"):
        (project / folder / "__init__.py").touch()
    (project / "dg.toml").write_text(
        'directory_type = "project"\n[project]\nroot_module = "project"\n'
    )
    done = subprocess.run(
        [dg_command, "list", "components", "--json"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    listed = json.loads(done.stdout)
    # Dagster 1.11 prints the list alone.
    items = listed["items"] if isinstance(listed, dict) else listed
    assert TYPE in {one["key"] for one in items}


# ---------------------------------------------------------------- types of the fields

_WRONG: list[Any] = ["x", "yes", "no", "on", "", "None", "{{ '' }}", "{{ none }}", "{{ 'y' }}"]
_LISTS: list[Any] = [["x"], [5], {"a": 1}]
#: Type of a field -> values that it takes, with what they mean, and values that it refuses.
FIELDS: dict[type, tuple[list[tuple[Any, Any]], list[Any]]] = {
    bool: (
        [(True, True), (False, False), (None, None), ("true", True), ("T", True), ("1", True),
         ("{{ 'FALSE' }}", False), ("f", False), ("0", False), ("{{ 1 == 1 }}", True)],
        [*_WRONG, *_LISTS, 5, 1.5, "5", "ye s", "truefalse"],
    ),
    int: ([(7, 7), ("7", 7), ("{{ '7' }}", 7), (None, None)],
          [*_WRONG, *_LISTS, True, False, 7.5, "7.5", "true", "{{ true }}"]),
    float: ([(0.5, 0.5), (1, 1.0), ("0.5", 0.5), ("{{ 0.5 }}", 0.5), (None, None)],
            [*_WRONG, *_LISTS, True, False, "true", "{{ true }}"]),
    list: ([(["x"], ["x"]), ("{{ ['x', 'y'] }}", ["x", "y"]), (["{{ 'x' }}"], ["x"]), (None, None)],
           [*_WRONG, [5], {"a": 1}, 5, True, "*.csv", "{{ '*.csv' }}", [None], ["{{ none }}"]]),
    dict: ([({"a": "x"}, {"a": "x"}), ({"a": "{{ 'x' }}"}, {"a": "x"}), (None, None)],
           [*_WRONG, ["x"], {"a": 1}, {"a": None}, 5, True]),
    str: ([("x", "x"), ("{{ 'x' }}", "x")],
          [*_LISTS, 5, True, 1.5, "None", "{{ none }}", "{{ 5 }}", "{{ ['x'] }}"]),
}  # fmt: skip


def _type_of(annotation: Any) -> type:
    text = str(annotation)
    names = {
        "Mapping": dict,
        "Sequence": list,
        "Literal": str,
        "bool": bool,
        "int": int,
        "float": float,
    }
    return next((kind for name, kind in names.items() if name in text), str)


@pytest.mark.parametrize("name", sorted(set(TransferModel.model_fields) - {"vcpu_quota"}))
def test_a_field_is_of_its_type(name: str) -> None:
    annotation = TransferModel.model_fields[name].annotation
    right, wrong = FIELDS[_type_of(annotation)]
    for value, meaning in right if "Literal" not in str(annotation) else ():
        text = yaml.safe_dump({**PARIS, name: value})
        assert getattr(TransferModel.resolve_from_yaml(text), name) == meaning, value
    for value in wrong:
        text = yaml.safe_dump({**PARIS, name: value})
        with pytest.raises((ConfigurationInvalid, ValidationError, ResolutionException)):
            TransferModel.resolve_from_yaml(text)


@pytest.mark.parametrize(
    "odd",
    [
        {"max_retries": value} for value in (True, -1, "-1", 1.5, "yes", "", ["x"], "{{ none }}")
    ] + [{"manifest": value} for value in (5, True, ["x"], "{{ none }}", "None")]
    + [{"gateways": value} for value in (5, True, None, "yes", "")],
)  # fmt: skip
def test_an_attribute_is_of_its_type(odd: dict[str, Any]) -> None:
    with pytest.raises(Exception) as caught, asset_of({"transfers": [PARIS], **odd}):
        pass
    (name,) = odd
    assert name in all_texts(caught.value)


def test_retries_may_be_a_text() -> None:
    with asset_of({"transfers": [PARIS], "max_retries": "{{ '2' }}"}) as made:
        assert made.op.retry_policy == dg.RetryPolicy(max_retries=2)
