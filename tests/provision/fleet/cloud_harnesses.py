"""The clouds of both conformance suites: write a `CloudHarness`, and add its context manager."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, Protocol

from tests.provision.aws.harness import aws_harness
from tests.provision.azure.harness import azure_harness
from tests.provision.fleet.cloud_harness import CloudHarness
from tests.provision.gcp.harness import gcp_harness

from strict_clouds.machines import MachineBooter


class OpensCloud(Protocol):
    """Opens the strict fake of a cloud, whose instances are these machines."""

    def __call__(
        self, machines: MachineBooter | None = None
    ) -> AbstractContextManager[CloudHarness]:
        """For None instances have no machine."""


HARNESSES: Final[dict[str, OpensCloud]] = {
    "aws": aws_harness,
    "azure": azure_harness,
    "gcp": gcp_harness,
}
