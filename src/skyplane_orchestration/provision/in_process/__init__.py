"""Gateways inside the calling process, for jobs too small for processes of their own."""

from skyplane_orchestration.provision.in_process.provisioner import InProcessProvisioner
from skyplane_orchestration.provision.in_process.small_jobs import SmallJobsProvisioner

__all__ = ["InProcessProvisioner", "SmallJobsProvisioner"]
