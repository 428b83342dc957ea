"""The provider's description holds by Airflow's schema and names what exists."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.metadata import entry_points, version
from importlib.resources import files
from types import SimpleNamespace

import jsonschema
import pytest

from skyplane_orchestration import operators
from skyplane_orchestration.hooks.skyplane import SkyplaneHook
from skyplane_orchestration.provider_info import (
    CONNECTION_FIELDS,
    CONNECTION_TYPE,
    get_provider_info,
)


def modules_and_classes() -> list[str]:
    info = get_provider_info()
    modules = [
        module
        for kind in ("operators", "hooks")
        for entry in info[kind]
        for module in entry["python-modules"]
    ]
    classes = [entry["hook-class-name"] for entry in info["connection-types"]]
    return [*modules, *classes]


def test_is_plain_data() -> None:
    info = get_provider_info()
    assert json.loads(json.dumps(info)) == info


def test_version_is_the_distributions() -> None:
    assert get_provider_info()["versions"] == [version("skyplane-orchestration")]


def test_entry_point_leads_here() -> None:
    points = entry_points(group="apache_airflow_provider", name="provider_info")
    (ours,) = [point for point in points if point.value.startswith("skyplane_orchestration.")]
    assert ours.load() is get_provider_info


def test_meets_airflows_schema() -> None:
    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_every_public_operator_stands_there() -> None:
    (entry,) = get_provider_info()["operators"]
    listed = set(entry["python-modules"])
    named = [getattr(operators, name) for name in operators.__all__]
    ours = {found.__module__ for found in named if str(found.__name__).endswith("Operator")}
    assert ours <= listed


def test_the_form_of_older_releases_has_the_same_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    # Airflow before 3.2 brings both packages; they are not installed with this one.
    for name, words in (
        ("flask_appbuilder", {}),
        ("flask_appbuilder.fieldwidgets", {"BS3TextFieldWidget": object}),
        ("wtforms", {"StringField": lambda label, **more: (label, more["description"])}),
    ):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**words))
    fields = SkyplaneHook.get_connection_form_widgets()
    assert {name: label for name, (label, _) in fields.items()} == {
        name: field["label"] for name, field in CONNECTION_FIELDS.items()
    }


@pytest.mark.parametrize("name", modules_and_classes())
def test_what_it_names_exists(name: str) -> None:
    parent, _, last = name.rpartition(".")
    if last[0].isupper():
        assert isinstance(getattr(import_module(parent), last), type)
    else:
        import_module(name)


def test_connection_form_is_shown_without_the_hook() -> None:
    (connection,) = get_provider_info()["connection-types"]
    assert connection["connection-type"] == CONNECTION_TYPE
    behaviour = connection["ui-field-behaviour"]
    assert not set(behaviour["hidden-fields"]) & set(behaviour["relabeling"])
    for field in connection["conn-fields"].values():
        assert field["label"]
        assert "null" in field["schema"]["type"], "a field left empty must be accepted"
