"""Creates the `Client` of a command from its options, and names commands for the same fleets."""

from __future__ import annotations

import argparse
import uuid
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.cli.console import print_error
from skyplane_orchestration.model.identity import RunIdentity

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client, FleetTimes
    from skyplane_orchestration.errors import SkyplaneError
    from skyplane_orchestration.model.fleet import GatewayPlace
    from skyplane_orchestration.provision.choice import ProvisionerChoice

#: Owner of every run that this command starts.
OWNER: Final = "skyplane-orch"


def open_client(options: argparse.Namespace, *, run: str = "", grid: str = "shipped") -> Client:
    """Create a client; an empty `run` is a new one. Raises ConfigurationInvalid."""
    from skyplane_orchestration.client import Client

    place: GatewayPlace = getattr(options, "gateways", "always")
    return Client(
        identity=RunIdentity(
            options.deployment, OWNER, run or uuid.uuid4().hex, may_be_repeated=bool(run)
        ),
        provisioner=_choice_of(options).open(place),
        grid=grid,
        price_overrides=getattr(options, "price_overrides", None),
        times=_times_from(options),
    )


def command_line(options: argparse.Namespace, *words: str) -> str:
    """A command for the user to run, which looks where the command of `options` has worked."""
    return _choice_of(options).command(options.deployment, *words)


def print_may_still_run(options: argparse.Namespace, key: str, error: SkyplaneError) -> None:
    """Print why the end of a fleet is not known, and the command that ends it."""
    command = command_line(options, "teardown", "--fleet-key", key)
    print_error(f"fleet {key} may still run: {error}; to end it: {command}")


def _choice_of(options: argparse.Namespace) -> ProvisionerChoice:
    from skyplane_orchestration.provision.choice import ProvisionerChoice

    return ProvisionerChoice(
        provisioner=options.provisioner,
        run_root=options.run_root,
        hosts_file=options.hosts,
        clouds_file=options.clouds,
        processes_per_instance=getattr(options, "processes_per_instance", None),
    )


def _times_from(options: argparse.Namespace) -> FleetTimes:
    from skyplane_orchestration.client import FleetTimes

    names = [field.name for field in fields(FleetTimes)]
    given = {name: getattr(options, name, None) for name in names}
    return FleetTimes(**{name: value for name, value in given.items() if value is not None})
