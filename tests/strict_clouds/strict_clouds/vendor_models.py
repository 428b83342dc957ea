"""What the vendors' own packages say of requests and answers, cut down to `models/*.json`.

    uv run --no-project --with PACKAGE==VERSION ... python -m strict_clouds.vendor_models

`make vendor-models` names the packages: google-api-python-client has the discovery documents of
Google, azure-mgmt-* the model classes of Azure. They are too large and too slow to import for
every run of the tests, so only what the fakes serve is kept, in the format of discovery documents.
AWS's models are read from botocore as they are.
"""

from __future__ import annotations

import datetime
import importlib
import inspect
import json
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, Union

from strict_clouds.arm_wire import ROUTES
from strict_clouds.gce_wire import METHODS

_FOLDER: Final = Path(__file__).with_name("models")
#: What is kept of a property.
_KEPT: Final = ("type", "format", "enum", "pattern", "minimum", "maximum", "$ref")
#: Methods of Cloud Storage: those of objects, and what a store asks of its bucket.
_STORAGE: Final = re.compile(
    r"storage\.(objects|folders)\.|storage\.buckets\.(get|insert|patch|testIam)"
)
_PROJECT_PERMISSIONS: Final = re.compile(r"cloudresourcemanager\.projects\.testIamPermissions")
_ACCOUNT_PERMISSIONS: Final = re.compile(r"iam\.projects\.serviceAccounts\.testIamPermissions")
#: Rule of the fake of Azure -> package below `azure.mgmt`, group of operations, method.
_ARM: Final = {
    "groups.list": ("resource.resources", "ResourceGroups", "list"),
    "groups.get": ("resource.resources", "ResourceGroups", "get"),
    "groups.put": ("resource.resources", "ResourceGroups", "create_or_update"),
    "groups.delete": ("resource.resources", "ResourceGroups", "begin_delete"),
    "groups.resources": ("resource.resources", "Resources", "list_by_resource_group"),
    "providers.get": ("resource.resources", "Providers", "get"),
    "machines.tags": ("resource.resources", "Tags", "get_at_scope"),
    "machines.tag": ("resource.resources", "Tags", "begin_update_at_scope"),
    "networkUsages.list": ("network", "Usages", "list"),
    "skus.list": ("compute", "ResourceSkus", "list"),
    "usages.list": ("compute", "Usage", "list"),
    "machines.listAll": ("compute", "VirtualMachines", "list_all"),
    "machines.list": ("compute", "VirtualMachines", "list"),
    "machines.get": ("compute", "VirtualMachines", "get"),
    "machines.put": ("compute", "VirtualMachines", "begin_create_or_update"),
    "machines.delete": ("compute", "VirtualMachines", "begin_delete"),
    "machines.console": ("compute", "VirtualMachines", "retrieve_boot_diagnostics_data"),
    "disks.list": ("compute", "Disks", "list"),
    "disks.delete": ("compute", "Disks", "begin_delete"),
    "securityRules.get": ("network", "SecurityRules", "get"),
    "securityRules.put": ("network", "SecurityRules", "begin_create_or_update"),
    "securityRules.delete": ("network", "SecurityRules", "begin_delete"),
    **{
        f"{rule}.{verb}": ("network", group, method)
        for rule, group in (
            ("firewalls", "NetworkSecurityGroups"),
            ("networks", "VirtualNetworks"),
            ("interfaces", "NetworkInterfaces"),
            ("addresses", "PublicIPAddresses"),
        )
        for verb, method in (
            ("list", "list_all"),
            ("get", "get"),
            ("put", "begin_create_or_update"),
            ("delete", "begin_delete"),
        )
    },
}
#: Lists of values that Azure itself calls out of date: sizes are as many as `skus.list` says.
_OPEN: Final = ("VirtualMachineSizeTypes",)
#: Rule -> version, request and row of an answer in `azure.mgmt.authorization`, which is older.
_AUTHORIZATION: Final = {
    "machines.assign": ("2022-04-01", "RoleAssignmentCreateParameters", "RoleAssignment", False),
    "permissions.list": ("2022-04-01", "", "Permission", True),
}
_SCALARS: Final[Mapping[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bytes: {"type": "string"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string"},
    Any: {"type": "any"},
}


# Google's discovery documents.


def _property(described: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: described[name] for name in _KEPT if name in described}
    text = described.get("description", "")
    if described.get("readOnly") or "[Output Only]" in text[:40]:
        kept["readOnly"] = True
    if required := described.get("annotations", {}).get("required"):
        kept["requiredBy"] = required
    for inner in ("items", "additionalProperties"):
        if inner in described:
            kept[inner] = _property(described[inner])
    if "properties" in described:
        kept["properties"] = {name: _property(one) for name, one in described["properties"].items()}
    return kept


def _methods(resources: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in resources.values():
        for method in resource.get("methods", {}).values():
            yield method["id"], method
        yield from _methods(resource.get("resources", {}))


def _google(name: str, wanted: re.Pattern[str]) -> dict[str, Any]:
    folder = Path(importlib.import_module("googleapiclient").__file__ or "").parent
    path = folder / "discovery_cache" / "documents" / f"{name}.json"
    document = json.loads(path.read_text())
    methods = {
        one: {
            "httpMethod": method["httpMethod"],
            "path": method["path"],
            "parameters": {
                parameter: {
                    **_property(told),
                    "location": told["location"],
                    "required": told.get("required", False),
                }
                for parameter, told in method.get("parameters", {}).items()
            },
            "request": method.get("request", {}).get("$ref", ""),
            "response": method.get("response", {}).get("$ref", ""),
        }
        for one, method in _methods(document["resources"])
        if wanted.match(one)
    }
    schemas = {one: _property(told) for one, told in document["schemas"].items()}
    source = f"google-api-python-client {version('google-api-python-client')}"
    return {
        "source": f"{source}, {name} of {document['revision']}",
        "parameters": sorted(document["parameters"]),
        "methods": methods,
        "schemas": _reached(methods.values(), schemas),
    }


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from _references(one)


def _reached(methods: Iterable[Mapping[str, Any]], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas that methods name, and those that these name."""
    todo = [method[end] for method in methods for end in ("request", "response") if method[end]]
    found: dict[str, Any] = {}
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = schemas[name]
            todo += _references(found[name])
    return dict(sorted(found.items()))


# Azure's model classes.


def _azure() -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    methods: dict[str, dict[str, Any]] = {}
    for rule, (package, group, method) in _ARM.items():
        operations = importlib.import_module(f"azure.mgmt.{package}.operations._operations")
        called = getattr(operations, f"{group}Operations")
        text = inspect.getsource(getattr(called, method))
        builder = f"build_{_snake(group)}_{method.removeprefix('begin_')}_request"
        built = inspect.getsource(getattr(operations, builder))
        models = importlib.import_module(f"azure.mgmt.{package}.models")
        signature = text.partition(") ->")[0]
        sent = re.search(r"Union\[_models\.(\w+), ", signature)
        told = re.search(r"_deserialize\(\s*(List\[)?_models\.((?!CloudError)\w+)", text)
        api_version = re.search(r'"api-version", "([\d-]+)"', built)
        path = re.search(r'_url = (?:\(.*\n\s*)?"(.*)"', built)
        assert api_version is not None
        assert path is not None
        methods[rule] = {
            "path": path[1],
            "version": api_version[1],
            "query": re.findall(r'_params\["(.*?)"\] =', built),
            "headers": sorted({one.lower() for one in re.findall(r'_headers\["(.*?)"\] =', built)}),
            "request": sent[1] if sent else "",
            "response": told[2] if told else "",
            "isList": told is not None and bool(told[1]),
        }
        for one in (methods[rule]["request"], methods[rule]["response"]):
            if one:
                _add_class(getattr(models, str(one)), models, schemas)
    for rule, (number, request, response, is_list) in _AUTHORIZATION.items():
        old_models = f"azure.mgmt.authorization.v{number.replace('-', '_')}.models"
        for one in filter(None, (request, response)):
            schemas[one] = _of_old_class(getattr(importlib.import_module(old_models), one))
        methods[rule] = {
            "version": number,
            "query": ["api-version"],
            "request": request,
            "response": response,
            "isList": is_list,
        }
    missing = {rule for rule, _ in ROUTES.values()} - set(methods) - {"operations.get"}
    assert not missing, missing
    names = ("authorization", "compute", "network", "resource")
    source = ", ".join(f"azure-mgmt-{name} {version(f'azure-mgmt-{name}')}" for name in names)
    return {
        "source": source,
        "methods": methods,
        "schemas": dict(sorted(schemas.items())),
    }


def _of_old_class(model: Any) -> dict[str, Any]:
    """Of a class of scalars, and of lists of texts, whose fields are flattened."""
    fields: dict[str, Any] = {}
    inner: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    for name, told in model._attribute_map.items():
        kind, rules = told["type"], getattr(model, "_validation", {}).get(name, {})
        field: dict[str, Any] = {"type": "string"}
        if kind == "[str]":
            field = {"type": "array", "items": field}
        if kind == "iso-8601":
            field["format"] = "date-time"
        if rules.get("readonly"):
            field["readOnly"] = True
        where, _, last = told["key"].rpartition(".")
        (inner["properties"] if where else fields)[last] = field
        if rules.get("required"):
            inner["required"].append(last)
    return {"type": "object", "properties": {**fields, "properties": inner}}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _add_class(model: Any, models: Any, schemas: dict[str, Any]) -> None:
    """Add a class, and those of its fields."""
    if model.__name__ in schemas:
        return
    fields: dict[str, Any] = {}
    required: list[str] = []
    schemas[model.__name__] = {"type": "object", "properties": fields, "required": required}
    model.__new__(model)
    space = {**vars(importlib.import_module(f"{models.__name__}._models")), "_models": models}
    hints = typing.get_type_hints(model, space)
    for attribute, field in model._attr_to_rest_field.items():
        hint = hints[attribute]
        if type(None) in typing.get_args(hint):
            hint = Union[*(one for one in typing.get_args(hint) if one is not type(None))]
        else:
            required.append(field._rest_name)
        told = _of_hint(hint, models, schemas)
        if field._visibility == ["read"]:
            told["readOnly"] = True
        fields[field._rest_name] = told


def _of_hint(hint: Any, models: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return {"type": "array", "items": _of_hint(inner[0], models, schemas)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of_hint(inner[1], models, schemas)}
    if origin is Literal:
        return {"type": "string", "enum": [getattr(one, "value", one) for one in inner]}
    if origin is Union:
        # `Union[str, AnEnum]`
        known = inner[1].__name__ not in _OPEN
        return {"type": "string", **({"enum": [one.value for one in inner[1]]} if known else {})}
    _add_class(hint, models, schemas)
    return {"$ref": hint.__name__}


def _lines(document: Mapping[str, Any]) -> str:
    """JSON with a line for each method and schema, so that changes can be read."""
    parts = [
        f"{json.dumps(name)}: "
        + (
            "{\n"
            + ",\n".join(f"{json.dumps(one)}: {json.dumps(value[one])}" for one in sorted(value))
            + "\n}"
            if isinstance(value, Mapping)
            else json.dumps(value)
        )
        for name, value in document.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    _FOLDER.mkdir(exist_ok=True)
    compute = re.compile("|".join(re.escape(f"compute.{one}") + r"\Z" for one in METHODS))
    for name, told in (
        ("compute", _google("compute.v1", compute)),
        ("resource_manager", _google("cloudresourcemanager.v1", _PROJECT_PERMISSIONS)),
        ("iam", _google("iam.v1", _ACCOUNT_PERMISSIONS)),
        ("storage", _google("storage.v1", _STORAGE)),
        ("arm", _azure()),
    ):
        path = _FOLDER / f"{name}.json"
        path.write_text(_lines(told))
        print(f"{path}: {len(told['methods'])} methods, {len(told['schemas'])} schemas")


if __name__ == "__main__":
    main()
