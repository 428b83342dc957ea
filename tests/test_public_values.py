"""Every field of every public value refuses what its annotation does not allow, in one line."""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
import types
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest
from tests.annotations import allows
from tests.transfer import samples

import skyplane_gateway
import skyplane_orchestration
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import Limits, MinimizeCost, Policy, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.fleet.user_data import BootSettings
from skyplane_orchestration.provision.kubernetes.options import ClusterRegion

#: What users write into fields, whatever the fields want.
GIVEN: Final[tuple[Any, ...]] = (
    "a text",
    "false",
    "1",
    "",
    0,
    1,
    7,
    1.5,
    math.nan,
    math.inf,
    True,
    False,
    None,
    [],
    ["a"],
    [1],
    (),
    {},
    {"a": "b"},
    {"a": 1},
    {1: 2},
    b"bytes",
    Path("a"),
    object(),
    MinimizeCost(2.0),
)

#: Endings of names of classes that users fill in, wherever they are.
_FILLED_IN: Final = ("Options", "Settings", "Choice", "Times", "Host", "Config", "Spec", "Filter")

#: Modules of orchestrators, which take long to load, and programs.
_OTHERS: Final = re.compile(r"\.(dagster|hooks|links|operators|plugins|triggers|__main__)\b")

#: Made by the library, from values that were checked or from documents, which `decode` checks.
MADE_BY_THE_LIBRARY: Final = frozenset(
    {
        "CloudOptions",  # Users fill in those of a cloud.
        "SourceContents",
        *("CopiedObject", "CostOutcome", "EdgeOutcome", "FailedObject", "TransferResult"),
        "TryOutcome",
        *("DeleteLimit", "EdgeMeasurement", "Fleet", "FleetInstance", "GatewayHandle"),
        *(
            "GridReference",
            "InstanceGroup",
            "PlanCost",
            "PlanEdge",
            "PlanPath",
            "RefusedLaunch",
        ),
        *("PlanTree", "SolverReport"),
        *("TransferPlan", "NamedUpload", "QuotaUse", "Region", "RegionQuota", "ResumeHandle"),
        "SweepReport",
        *(
            "JobOptions",
            "SweptFleet",
            "SweptPlace",
            "SweptTransfer",
            "SweptUpload",
            "TransferStatus",
        ),
        *(
            "InstanceSettings",
            "OpenHost",
            "StoreOptions",
            "StoreSpec",
            "TransferSpec",
        ),
    }
)

LOCATION = Location("s3://bucket/key/")
GUID = "01234567-89ab-cdef-0123-456789abcdef"
IMAGE = "registry.example/skyplane-gateway@sha256:" + "0" * 64

#: Class -> valid values of the fields that have no default.
EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "AzureOptions": {"subscription_id": GUID},
    "BootSettings": {"image": IMAGE},
    "CloudsSettings": {
        "boot": BootSettings(image=IMAGE),
        "options": InstanceOptions(("203.0.113.7/32",)),
        "clouds": {"aws": {}},
        "source": "a file",
    },
    "Deadline": {"seconds": 60.0},
    "FleetSpec": {"key": "ab", "generation": 0, "deployment": "d", "plan": samples.PLAN},
    "GatewayConfig": dict.fromkeys(
        ("node", "fleet_key", "control_host", "data_host", "directory"), "a"
    ),
    "GcpOptions": {"project": "my-project-123"},
    "InstanceOptions": {"control_cidrs": ("203.0.113.7/32",)},
    "KubernetesOptions": {"regions": {"aws:eu-west-1": ClusterRegion()}, "image": IMAGE},
    "Location": {"url": "s3://bucket/key"},
    "MaximizeThroughput": {"max_usd_per_gb": 1.0},
    "MinimizeCost": {"min_throughput_gbps": 1.0},
    "RunIdentity": {"deployment": "d", "owner": "o", "run": "r"},
    "SshHost": {"address": "10.0.0.5"},
    "SshOptions": {"hosts": {}},
    "TransferJob": {"source": LOCATION, "destination": LOCATION},
}


def _modules() -> Iterator[types.ModuleType]:
    for package in (skyplane_orchestration, skyplane_gateway):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not _OTHERS.search(found.name):
                yield importlib.import_module(found.name)
    yield importlib.import_module("skyplane_orchestration.hooks.settings")


def _is_public(kind: type) -> bool:
    return (
        not kind.__name__.startswith("_")
        and kind.__name__ not in MADE_BY_THE_LIBRARY
        and (
            kind.__module__.startswith("skyplane_orchestration.model.")
            or (kind.__name__.endswith(_FILLED_IN))
        )
    )


def _public_values() -> list[type[Any]]:
    found = {
        member
        for module in _modules()
        for member in vars(module).values()
        if isinstance(member, type) and is_dataclass(member) and _is_public(member)
    }
    return sorted(found, key=lambda kind: kind.__name__)


PUBLIC_VALUES: Final = _public_values()


def test_the_public_values_are_found() -> None:
    found = {kind.__name__ for kind in PUBLIC_VALUES}
    assert {*EXAMPLES, "FleetTimes", "Limits", "Policy", "Settings", "LocalOptions"} <= found


@pytest.mark.parametrize("kind", PUBLIC_VALUES, ids=lambda kind: kind.__name__)
def test_every_field_refuses_what_its_annotation_does_not_allow(kind: type[Any]) -> None:
    example = EXAMPLES.get(kind.__name__, {})
    kind(**example)
    hints = get_type_hints(kind)
    wrong: list[str] = []
    for field in fields(kind):
        if not field.init:
            continue
        for value in GIVEN:
            what = f"{field.name}={value!r}"
            try:
                made = kind(**{**example, field.name: value})
            except ConfigurationInvalid as error:
                if not allows(hints[field.name], value) and field.name not in str(error):
                    wrong.append(f"{what}: the message does not name it: {error}")
                if "\n" in str(error):
                    wrong.append(f"{what}: {error}")
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                wrong.append(f"{what}: {type(error).__name__}: {error}")
            else:
                if not allows(hints[field.name], value):
                    wrong.append(f"{what} is taken")
                elif not allows(hints[field.name], getattr(made, field.name)):
                    wrong.append(f"{what} becomes {getattr(made, field.name)!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", PUBLIC_VALUES, ids=lambda kind: kind.__name__)
def test_the_examples_have_no_more_than_is_needed(kind: type[Any]) -> None:
    required = {
        field.name
        for field in fields(kind)
        if field.init and field.default is MISSING and field.default_factory is MISSING
    }
    assert required <= EXAMPLES.get(kind.__name__, {}).keys()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TransferJob("a", "b"), "source must be a Location, not 'a'"),  # type: ignore[arg-type]
        (lambda: TransferJob(LOCATION, LOCATION, max_delete=0), "max_delete must be text, not 0"),  # type: ignore[arg-type]
        (lambda: TransferJob(LOCATION, LOCATION, bwlimit=10), "bwlimit must be text, not 10"),  # type: ignore[arg-type]
        (lambda: TransferJob(LOCATION, LOCATION, move="false"), "move must be true or false"),  # type: ignore[arg-type]
        (lambda: Limits(vcpu_quota="{{x}}"), "vcpu_quota must be .*, not '{{x}}'"),  # type: ignore[arg-type]
        (lambda: Location(Path("a")), "url must be text, not "),  # type: ignore[arg-type]
        (lambda: Policy(exclude_regions=[1]), r"exclude_regions\[0\] must be text, not 1"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_one_line(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=words) as found:
        make()
    assert "\n" not in str(found.value)


def test_a_whole_number_serves_for_a_float_and_a_list_for_a_tuple() -> None:
    job = TransferJob(LOCATION, LOCATION, volume_gb=2, include=["*.csv"])  # type: ignore[arg-type]
    assert (job.volume_gb, type(job.volume_gb), job.include) == (2.0, float, ("*.csv",))
