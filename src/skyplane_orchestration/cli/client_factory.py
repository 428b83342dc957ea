"""Creates the `Client` of a command from its options."""

from __future__ import annotations

import argparse
import uuid
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.model.identity import RunIdentity

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client, FleetTimes

#: Owner of every run that this command starts.
OWNER: Final = "skyplane-orch"


def open_client(options: argparse.Namespace, *, run: str = "", grid: str = "shipped") -> Client:
    """Create a client; an empty `run` is a new one. Raises ConfigurationInvalid."""
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

    return Client(
        identity=RunIdentity(options.deployment, OWNER, run or uuid.uuid4().hex),
        provisioner=LocalProvisioner(LocalOptions(run_root=options.run_root)),
        grid=grid,
        price_overrides=getattr(options, "price_overrides", None),
        times=_times_from(options),
    )


def _times_from(options: argparse.Namespace) -> FleetTimes:
    from skyplane_orchestration.client import FleetTimes

    names = [field.name for field in fields(FleetTimes)]
    given = {name: getattr(options, name, None) for name in names}
    return FleetTimes(**{name: value for name, value in given.items() if value is not None})
