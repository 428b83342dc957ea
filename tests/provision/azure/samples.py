"""Launches for the tests of Azure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from tests.provision.fleet.launches import FLEET, WORKERS, first_launch, prepared_in

from skyplane_orchestration.provision.fleet.machines import Ingress

__all__ = ["FLEET", "WORKERS"]

REGION: Final = "azure:westeurope"
ARM_TYPE, X86_TYPE = "Standard_D4pls_v5", "Standard_D4s_v5"
GROUP: Final = f"skyplane-{FLEET.fleet_key}"
PEER: Final = Ingress(7602, 7602, "203.0.113.7/32")
REQUEST: Final = first_launch(REGION, X86_TYPE)
prepared = partial(prepared_in, REGION)
a_request = partial(replace, REQUEST)
