"""Creates the `Client` of a command from its options, and names commands for the same fleets."""

from __future__ import annotations

import argparse
import uuid
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.cli.console import print_error
from skyplane_orchestration.cli.job_from_options import fields_from
from skyplane_orchestration.client_settings import ClientSettings
from skyplane_orchestration.model.identity import RunIdentity

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.errors import SkyplaneError

#: Owner of every run that this command starts.
OWNER: Final = "skyplane-orch"


def open_client(options: argparse.Namespace, *, run: str = "") -> Client:
    """Create a client; an empty `run` is a new one. Raises ConfigurationInvalid."""
    return _settings_of(options).client(
        RunIdentity(options.deployment, OWNER, run or uuid.uuid4().hex, may_be_repeated=bool(run)),
        getattr(options, "gateways", "always"),
        price_overrides=getattr(options, "price_overrides", None),
    )


def command_line(options: argparse.Namespace, *words: str) -> str:
    """A command for the user to run, which looks where the command of `options` has worked."""
    return _settings_of(options).command(*words)


def print_may_still_run(options: argparse.Namespace, key: str, error: SkyplaneError) -> None:
    """Print why the end of a fleet is not known, and the command that ends it."""
    command = command_line(options, "teardown", "--fleet-key", key)
    print_error(f"fleet {key} may still run: {error}; to end it: {command}")


def _settings_of(options: argparse.Namespace) -> ClientSettings:
    return ClientSettings(**fields_from(ClientSettings, options))
