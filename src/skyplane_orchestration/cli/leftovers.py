"""What the command says about a fleet whose end is not known."""

from __future__ import annotations

import argparse

from skyplane_orchestration.cli.client_factory import command_line
from skyplane_orchestration.cli.console import print_error
from skyplane_orchestration.errors import SkyplaneError


def print_may_still_run(options: argparse.Namespace, key: str, error: SkyplaneError) -> None:
    """Print why it is not known, and the command that ends the fleet."""
    command = command_line(options, "teardown", "--fleet-key", key)
    print_error(f"fleet {key} may still run: {error}; to end it: {command}")
