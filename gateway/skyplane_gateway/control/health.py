"""`skyplane-gateway health [CONFIG...]`: whether the gateways of a container answer."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from skyplane_gateway.common.errors import ConfigurationInvalid, NotAuthorised, SkyplaneError
from skyplane_gateway.common.identifiers import gateway_uri
from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.control.tls import client_context

_TIMEOUT_S: Final = 5.0

#: Where `skyplane-gateway enrol` puts the configurations, below `TMPDIR`.
_ENROLLED: Final = "skyplane-*/*/*/config.json"


def run(arguments: Sequence[str]) -> int:
    """Exit code 1 if a gateway does not answer at its control port; says which.

    Before the enrolment there is no gateway, and that is well.
    """
    parser = argparse.ArgumentParser(prog="skyplane-gateway health", description=__doc__)
    parser.add_argument(
        "config", nargs="*", type=Path, help="GatewayConfig as JSON (default: those of `enrol`)"
    )
    configs = parser.parse_args(arguments).config
    configs = configs or sorted(Path(tempfile.gettempdir()).glob(_ENROLLED))
    silent = [why for why in map(_why_silent, configs) if why]
    print("\n".join(silent) or f"gateways that answer: {len(configs)}")  # noqa: T201
    return 1 if silent else 0


def _why_silent(path: Path) -> str:
    """Why a gateway does not answer; empty if it does."""
    try:
        config = GatewayConfig.from_dict(json.loads(path.read_text()))
        port = int(json.loads(config.ready_path.read_text())["control_port"])
        context = client_context(config)
    except (OSError, ValueError, KeyError, ConfigurationInvalid) as error:
        return f"{path}: {error}"
    uri = gateway_uri(config.fleet_key, config.node)
    client = ControlClient(config.control_host, port, context, uri, _TIMEOUT_S)
    try:
        client.status()
    except NotAuthorised:
        return ""  # Only a source may ask for the state; the refusal is an answer too.
    except SkyplaneError as error:
        return f"{config.node}: {error}"
    finally:
        client.close()
    return ""
