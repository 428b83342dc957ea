"""Launches for the tests of Google Cloud."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from tests.provision.fleet.launches import FLEET, WORKERS, first_launch, prepared_in

__all__ = ["FLEET", "WORKERS"]

REGION: Final = "gcp:us-central1"
ARM_TYPE, X86_TYPE = "t2a-standard-2", "n2-standard-4"
REQUEST: Final = first_launch(REGION, X86_TYPE)
prepared = partial(prepared_in, REGION)
a_request = partial(replace, REQUEST)
