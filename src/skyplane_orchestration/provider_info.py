"""The description of this Airflow provider: connection type, hook and operators.

Airflow reads this before its own configuration is ready, so nothing here imports Airflow.
Airflow 3.2 and later read the connection form from here; `SkyplaneHook` gives it to older
releases.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

_NAME: Final = "Skyplane"

CONNECTION_TYPE: Final = "skyplane"

#: Fields of the connection's `extra`, by name.
CONNECTION_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "deployment": {
        "label": "Deployment",
        "description": "Name of this installation, such as prod-eu. It is part of every fleet's "
        "key, so two installations must not share it.",
        "schema": {"type": ["string", "null"]},
    },
    "provisioner": {
        "label": "Provisioner",
        "description": "Where gateways run: local starts them as processes on the worker, ssh on "
        "the machines of the hosts, cloud on instances that it launches as the clouds say; "
        "aws, gcp or azure on instances in that cloud only.",
        "schema": {"type": ["string", "null"], "default": "local"},
    },
    "grid": {
        "label": "Grid",
        "description": "Name or directory of the grid to plan on; empty for the shipped grid.",
        "schema": {"type": ["string", "null"]},
    },
    "hosts_file": {
        "label": "Hosts file",
        "description": "File on the worker with the machines of each region, for the provisioner "
        "ssh.",
        "schema": {"type": ["string", "null"]},
    },
    "hosts": {
        "label": "Hosts",
        "description": "JSON object with the content of a hosts file, in its place; without the "
        "fields python and image.",
        "schema": {"type": ["object", "null"]},
    },
    "clouds_file": {
        "label": "Clouds file",
        "description": "File on the worker with what instances run and the settings of each cloud, "
        "for the provisioner cloud.",
        "schema": {"type": ["string", "null"]},
    },
    "clouds": {
        "label": "Clouds",
        "description": "JSON object with the content of a clouds file, in its place, such as "
        '{"image": "...", "control_cidrs": ["203.0.113.7/32"], "aws": {"credential_ref": '
        '"airflow:aws_gateways"}}.',
        "schema": {"type": ["object", "null"]},
    },
    "run_root": {
        "label": "Run directory",
        "description": "Directory of local fleets on a worker; all tasks of a fleet must see the "
        "same directory. Empty for a directory of the worker's user.",
        "schema": {"type": ["string", "null"]},
    },
    "processes_per_instance": {
        "label": "Processes per instance",
        "description": "Gateway processes of each instance. Empty for as many as give each "
        "processor of the worker a gateway, 8 at most.",
        "schema": {"type": ["integer", "null"]},
    },
    "max_active_fleets": {
        "label": "Most fleets",
        "description": "Highest number of living fleets of the deployment. A task that needs "
        "another one waits. Empty for no limit.",
        "schema": {"type": ["integer", "null"]},
    },
    "gateway_settings": {
        "label": "Gateway settings",
        "description": "JSON object with fields of every gateway's configuration, such as "
        '{"ack_deadline_s": 60, "stall_deadline_s": 120}. Empty for the defaults.',
        "schema": {"type": ["object", "null"]},
    },
    "start_within_s": {
        "label": "Start within (s)",
        "description": "Longest time from provision to transfer, including the time in the "
        "scheduler's queue.",
        "schema": {"type": ["number", "null"]},
    },
    "lease_s": {
        "label": "Lease (s)",
        "description": "Gateways end after this time without contact to the transfer.",
        "schema": {"type": ["number", "null"]},
    },
    "hard_end_s": {
        "label": "Hard end (s)",
        "description": "Gateways end after this time in any case.",
        "schema": {"type": ["number", "null"]},
    },
}

#: Layout of the connection form.
UI_FIELD_BEHAVIOUR: Final[dict[str, Any]] = {
    "hidden-fields": ["host", "port", "schema", "login"],
    "relabeling": {"password": "Fleet secret"},
    "placeholders": {
        "password": "at least 32 random bytes in hex; every worker derives the keys from it",
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
