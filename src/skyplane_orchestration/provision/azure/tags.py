"""Tags of a fleet's resources on Azure, and their names.

Azure takes any text of up to 256 characters as a value, so nothing is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.fleet.machines import FleetTags

PREFIX: Final = "skyplane:"
FLEET: Final = f"{PREFIX}fleet"
DEPLOYMENT: Final = f"{PREFIX}deployment"
INSTANCE: Final = f"{PREFIX}instance"
LAUNCH: Final = f"{PREFIX}launch"
KEY: Final = f"{PREFIX}key"

#: Azure keeps these for itself, in any case.
_RESERVED: Final = ("azure", "microsoft", "windows")
_FORBIDDEN: Final = frozenset("<>%&\\?/")
#: Of a virtual machine; the other resources allow longer ones.
_MOST_NAME_CHARACTERS: Final = 512
_MOST_VALUE_CHARACTERS: Final = 256
#: Of the 50 that Azure allows, ours take the rest.
_MOST_USER_TAGS: Final = 40


def check_user_tags(user_tags: Mapping[str, str]) -> None:
    """Raises ConfigurationInvalid."""
    if len(user_tags) > _MOST_USER_TAGS:
        raise ConfigurationInvalid(f"user_tags of azure can have {_MOST_USER_TAGS} tags at most")
    for name, value in user_tags.items():
        if not name or len(name) > _MOST_NAME_CHARACTERS or not _FORBIDDEN.isdisjoint(name):
            raise ConfigurationInvalid(
                f"user_tags of azure has the name {name!r}; Azure allows {_MOST_NAME_CHARACTERS}"
                f" characters, and none of {' '.join(sorted(_FORBIDDEN))}"
            )
        if len(value) > _MOST_VALUE_CHARACTERS:
            raise ConfigurationInvalid(
                f"user_tags of azure has a value for {name!r} that is longer than"
                f" {_MOST_VALUE_CHARACTERS} characters"
            )
        if name.lower().startswith((PREFIX, *_RESERVED)):
            raise ConfigurationInvalid(
                f"user_tags of azure cannot have {name!r}: names that begin with {PREFIX!r} are"
                f" this library's, and what begins with {', '.join(_RESERVED)} is Azure's"
            )


def for_fleet(
    tags: FleetTags, user_tags: Mapping[str, str], more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The tags of a resource.

    Args:
        more: tags of ours that only this resource has, by name.

    Raises ConfigurationInvalid: the deployment is too long.
    """
    values = {**{_tag(name): text for name, text in tags.to_texts().items()}, **(more or {})}
    for name, value in values.items():
        if len(value) > _MOST_VALUE_CHARACTERS:
            raise ConfigurationInvalid(
                f"{name.removeprefix(PREFIX)} {value!r} is longer than the"
                f" {_MOST_VALUE_CHARACTERS} characters of a tag on Azure"
            )
    return {**user_tags, **values}


def fleet_of(tags: Mapping[str, str] | None) -> FleetTags | None:
    """The fleet of a resource; None if it is none of ours."""
    texts = {
        name.removeprefix(PREFIX).replace("-", "_"): value
        for name, value in (tags or {}).items()
        if name.startswith(PREFIX)
    }
    return FleetTags.from_texts(texts)


def filter_of_deployment(deployment: str) -> str:
    """The filter of a list of resource groups for the fleets of a deployment."""
    quoted = deployment.replace("'", "''")
    return f"tagName eq '{DEPLOYMENT}' and tagValue eq '{quoted}'"


def _tag(name: str) -> str:
    """The tag of a short name, such as `hard_end`."""
    return PREFIX + name.replace("_", "-")
