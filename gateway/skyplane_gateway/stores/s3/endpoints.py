"""Which endpoints of S3 have sessions that a policy limits; needs no SDK."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

_AWS_HOSTS: Final = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
#: Names another service than AWS that gives sessions for an endpoint.
_STS_ENDPOINT: Final = "AWS_ENDPOINT_URL_STS"


def has_sessions(endpoint_url: str | None) -> bool:
    """Whether an endpoint is that of AWS, or of a service whose own STS this process knows."""
    return _is_aws(endpoint_url) or not _is_aws(os.environ.get(_STS_ENDPOINT))


def _is_aws(url: str | None) -> bool:
    host = urlsplit(url or "").hostname
    return not host or host.endswith(_AWS_HOSTS)
