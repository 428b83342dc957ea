"""From a verb's arguments to a `Client`, and the documents that verbs exchange."""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.identity import RunIdentity

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client, FleetTimes
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.plan import TransferPlan

#: The owner of every run that this command starts.
OWNER: Final = "skyplane-orch"


def open_client(options: argparse.Namespace, *, run: str = "", grid: str = "shipped") -> Client:
    """A client for this verb.

    Args:
        run: name of the run; a fresh one when empty.

    Raises ConfigurationInvalid for an option that cannot be used.
    """
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.provision.local.provisioner import LocalOptions, LocalProvisioner

    return Client(
        identity=RunIdentity(options.deployment, OWNER, run or uuid.uuid4().hex),
        provisioner=LocalProvisioner(LocalOptions(run_root=options.run_root)),
        grid=grid,
        price_overrides=getattr(options, "price_overrides", None),
        times=_times_from(options),
    )


def _times_from(options: argparse.Namespace) -> FleetTimes:
    from skyplane_orchestration.client import FleetTimes

    given = {
        name: value
        for name in ("start_within_s", "lease_s", "hard_end_s")
        if (value := getattr(options, name, None)) is not None
    }
    for name, value in given.items():
        if not value > 0:
            option = "--" + name.replace("_", "-")
            raise ConfigurationInvalid(f"{option} must be a number above zero, not {value:g}")
    return FleetTimes(**given)


def read_plan(source: str) -> TransferPlan:
    """The plan in a file, or on stdin for `-`. Raises ConfigurationInvalid."""
    from skyplane_orchestration.model.plan import TransferPlan

    return TransferPlan.from_dict(_read_object(source, "plan"))


def read_fleet(source: str) -> Fleet:
    """The fleet document in a file, or on stdin for `-`. Raises ConfigurationInvalid."""
    from skyplane_orchestration.model.fleet import Fleet

    return Fleet.from_dict(_read_object(source, "fleet"))


def read_text(source: str, what: str) -> str:
    """A file's text, or stdin's for `-`. Raises ConfigurationInvalid."""
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationInvalid(
            f"the {what} {source!r} cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationInvalid(f"the {what} {source!r} is not text") from error


def _read_object(source: str, what: str) -> dict[str, Any]:
    text = read_text(source, what)
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigurationInvalid(f"the {what} {source!r} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationInvalid(f"the {what} {source!r} is not a JSON object")
    return document


def write_picture(path: Path, svg: str) -> None:
    """Raises ConfigurationInvalid where the file cannot be written after all."""
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise ConfigurationInvalid(f"{str(path)!r} cannot be written: {error.strerror}") from error


def require_writable(path: Path) -> None:
    """Raises ConfigurationInvalid when a file cannot be written there later."""
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationInvalid(f"{str(path)!r} cannot be written: check its directory")
