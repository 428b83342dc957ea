"""AWS: instances, tags and security groups of EC2. The extra is `aws`."""

from __future__ import annotations

from skyplane_orchestration.provision.aws.cloud import AwsCloud
from skyplane_orchestration.provision.aws.options import AwsOptions

__all__ = ["AwsCloud", "AwsOptions"]
