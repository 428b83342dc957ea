"""How the gateway's image runs, on instances of clouds and on hosts; which images may be named."""

from __future__ import annotations

import re
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid

#: User and group of gateways where the account is root.
CONTAINER_USER: Final = 10001
MOST_OPEN_FILES: Final = 65536

#: Of `docker run` and `podman run`. The file system is read-only, `/tmp` is in memory.
CONTAINER_OPTIONS: Final = (
    *("--rm", "--network", "host", "--read-only"),
    *("--tmpfs", "/tmp:rw,nosuid,nodev,noexec,mode=1777"),
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    # A gateway gives its cleanup 30 s before it leaves.
    *("--log-driver", "none", "--stop-timeout", "40"),
)

# A name as of a registry (https://github.com/distribution/reference), then the digest.
_IMAGE: Final = re.compile(
    r"[a-z0-9]+(?:[._:/-]+[a-z0-9]+)*(?::[A-Za-z0-9_.-]{1,128})?@sha256:[0-9a-f]{64}"
)


def require_pinned(image: str) -> None:
    """Raise ConfigurationInvalid for an image that is not named with its digest."""
    if not _IMAGE.fullmatch(image):
        raise ConfigurationInvalid(
            f"image {image!r} is not pinned by a digest (`registry/name@sha256:` and 64"
            " hex characters); `docker image inspect --format '{{.RepoDigests}}' IMAGE` shows"
            " the digest"
        )
