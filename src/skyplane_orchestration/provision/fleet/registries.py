"""Private registries of the clouds, in which instances log in by their identity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import KUBERNETES

#: Cloud -> the form of its registries' hosts, and the user of a login with a token.
_SERVICES: Final = {
    "aws": (r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?", "AWS"),
    "azure": (r"[a-z0-9-]+\.azurecr\.io", "00000000-0000-0000-0000-000000000000"),
    "gcp": (r"(?:[a-z]+\.)?gcr\.io|[a-z0-9-]+-docker\.pkg\.dev", "oauth2accesstoken"),
}
#: Settings of clouds that name own images of machines.
_MACHINE_IMAGES: Final = ("images", "image_parameters")
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
    cloud = next((one for one, (form, _) in _SERVICES.items() if re.fullmatch(form, host)), "")
    named = {one for one, settings in clouds.items() if settings.get("registry_identity")}
    if useless := sorted(named - {cloud}):
        raise ConfigurationInvalid(
            f"registry_identity of {useless[0]} is for an image in a private registry of"
            f" {useless[0]}, and instances run none; leave it out"
        )
    # ECR allows no pull without login; the others may.
    if not named and cloud != "aws":
        return None
    # A machine image of the user's own may have a helper that logs in.
    own = {one for one, settings in clouds.items() if any(map(settings.get, _MACHINE_IMAGES))}
    able = {KUBERNETES} if named else {KUBERNETES, *own}
    if others := sorted(set(clouds) - {cloud} - able):
        raise ConfigurationInvalid(
            f"instances of {others[0]} cannot log in to {host}, which takes identities of {cloud}"
            f" only; {_WITHOUT}"
        )
    if not named and cloud in clouds and cloud not in own:
        raise ConfigurationInvalid(
            f"{host} allows no pull without login: name a registry_identity of {cloud} that may"
            f" pull, or images of machines that log in themselves; or {_WITHOUT}"
        )
    return Registry(cloud, host, _SERVICES[cloud][1]) if named else None
