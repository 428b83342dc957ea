"""Launches for the tests of AWS."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from tests.provision.fleet.launches import FLEET, WORKERS, first_launch, prepared_in

__all__ = ["FLEET", "WORKERS"]

REGION: Final = "aws:eu-west-3"
ARM_TYPE, X86_TYPE = "c7gn.large", "c6in.xlarge"
REQUEST: Final = first_launch(REGION, ARM_TYPE)
prepared = partial(prepared_in, REGION)
a_request = partial(replace, REQUEST)
