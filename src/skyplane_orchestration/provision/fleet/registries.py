"""Private registries of the clouds, in which instances log in by their identity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import KUBERNETES

#: Cloud -> its service, the form of its hosts, and the user of a login with a token.
_SERVICES: Final = {
    "aws": ("ECR", r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?", "AWS"),
    "azure": (
        "Container Registry",
        r"[a-z0-9]+\.azurecr\.io",
        "00000000-0000-0000-0000-000000000000",
    ),
    "gcp": (
        "Artifact Registry",
        r"(?:[a-z]+\.)?gcr\.io|[a-z0-9-]+-docker\.pkg\.dev",
        "oauth2accesstoken",
    ),
}
_WITHOUT: Final = "let them get push, a bundle, or an archive of the image at an address"


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry of a cloud, and the user who logs in there with a token."""

    cloud: str
    host: str
    user: str


def login_of(image: str, clouds: Mapping[str, Mapping[str, Any]]) -> Registry | None:
    """Where instances log in before they pull an image; None for a pull without login.

    Args:
        image: its name; empty for other software.
        clouds: cloud -> its settings. Those with a `registry_identity` log in.

    Raises ConfigurationInvalid: a cloud has an identity of no use, or instances cannot log in.
    """
    host = image.partition("/")[0]
    found = None
    for cloud, (service, form, user) in _SERVICES.items():
        is_there = bool(re.fullmatch(form, host))
        has_identity = bool(clouds.get(cloud, {}).get("registry_identity"))
        if has_identity and not is_there:
            raise ConfigurationInvalid(
                f"registry_identity of {cloud} is for images in {service}, and instances run none"
                " from there; leave it out"
            )
        # ECR allows no pull without login; the others may.
        if not is_there or not (has_identity or cloud == "aws"):
            continue
        if others := sorted(set(clouds) - {cloud, KUBERNETES}):
            raise ConfigurationInvalid(
                f"instances of {others[0]} cannot log in to {host}, which takes identities of"
                f" {cloud} only; {_WITHOUT}"
            )
        if cloud in clouds and not has_identity:
            raise ConfigurationInvalid(
                f"{host} allows no pull without login: name a registry_identity of {cloud} that may"
                f" pull, or {_WITHOUT}"
            )
        found = Registry(cloud, host, user)
    return found
