"""The ssh provisioner: gateways as processes of machines that one already has."""

from __future__ import annotations

from skyplane_orchestration.provision.ssh.options import SshOptions
from skyplane_orchestration.provision.ssh.provisioner import SshProvisioner

__all__ = ["SshOptions", "SshProvisioner"]
