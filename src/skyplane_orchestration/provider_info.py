"""The description of this Airflow provider: connection type, hook and operators.

Airflow reads this before its own configuration is ready, so nothing here imports Airflow.
Airflow 3.2 and later read the connection form from here; `SkyplaneHook` gives it to older
releases.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, get_type_hints

from skyplane_orchestration.client_settings import MEANINGS, ClientSettings
from skyplane_orchestration.model.fleet import LOCAL
from skyplane_orchestration.model.text_values import options_of

_NAME: Final = "Skyplane"

CONNECTION_TYPE: Final = "skyplane"

#: Type of a setting -> its name in the schema of a form.
_KINDS: Final = {str: "string", Path: "string", int: "integer", float: "number"}


def _form_field(name: str, hint: Any, what: str) -> dict[str, Any]:
    """A setting of clients in the connection's form."""
    (kind,) = (one for one in options_of(hint) if one is not type(None))
    schema: dict[str, Any] = {"type": [_KINDS.get(kind, "object"), "null"]}
    if name == "provisioner":
        schema["default"] = LOCAL
    if kind not in _KINDS:
        what = f"JSON object. {what}"
    return {
        "label": re.sub(r" s$", " (s)", name.replace("_", " ").capitalize()),
        "description": what,
        "schema": schema,
    }


#: Fields of the connection's `extra`, by name. The secret is its password.
CONNECTION_FIELDS: Final[dict[str, dict[str, Any]]] = {
    name: _form_field(name, hint, MEANINGS[name])
    for name, hint in get_type_hints(ClientSettings).items()
    if name != "fleet_secret"
}

#: Layout of the connection form.
UI_FIELD_BEHAVIOUR: Final[dict[str, Any]] = {
    "hidden-fields": ["host", "port", "schema", "login"],
    "relabeling": {"password": "Fleet secret"},
    "placeholders": {
        "password": "at least 32 random bytes in hex; every worker derives the keys from it"
    },
}


def get_provider_info() -> dict[str, Any]:
    """The provider's description in Airflow's `provider_info` schema."""
    return {
        "package-name": "skyplane-orchestration",
        "name": _NAME,
        "description": "Copies and moves objects between clouds over a planned overlay of regions.",
        "versions": [version("skyplane-orchestration")],
        "integrations": [
            {
                "integration-name": _NAME,
                "external-doc-url": "https://www.usenix.org/conference/nsdi23/presentation/jain",
                "tags": ["service"],
            }
        ],
        "operators": [
            _modules("operators", "plan", "provision", "transfer", "teardown", "sweep", "verify")
        ],
        "hooks": [_modules("hooks", "skyplane")],
        "triggers": [_modules("triggers", "transfer")],
        # Airflow 2 restores no other links of serialised tasks.
        "extra-links": [
            f"skyplane_orchestration.links.skyplane.Skyplane{name}Link"
            for name in ("Plan", "Transfer", "Lineage", "Console")
        ],
        "connection-types": [
            {
                "connection-type": CONNECTION_TYPE,
                "hook-name": _NAME,
                "hook-class-name": "skyplane_orchestration.hooks.skyplane.SkyplaneHook",
                "ui-field-behaviour": UI_FIELD_BEHAVIOUR,
                "conn-fields": CONNECTION_FIELDS,
            }
        ],
    }


def _modules(kind: str, *names: str) -> dict[str, Any]:
    return {
        "integration-name": _NAME,
        "python-modules": [f"skyplane_orchestration.{kind}.{name}" for name in names],
    }
