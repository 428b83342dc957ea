"""Labels of a fleet's instances and disks, and the description of its firewall rules.

Values of labels have lower-case letters, digits and hyphens. Any other character, `_` included,
is written as `_` and two hexadecimal digits per byte of its UTF-8, so every value can be read
back. A value of more than 63 characters is refused. Firewall rules have no labels: the same tags
stand in their description, as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.fleet.machines import FleetTags

PREFIX: Final = "skyplane_"
FLEET: Final = f"{PREFIX}fleet"
DEPLOYMENT: Final = f"{PREFIX}deployment"
INSTANCE: Final = f"{PREFIX}instance"
LAUNCH: Final = f"{PREFIX}launch"
KEY: Final = f"{PREFIX}key"
#: Of descriptions.
REGION: Final = f"{PREFIX}region"

_OTHER: Final = re.compile(r"[^a-z0-9-]")
_ESCAPED: Final = re.compile(r"((?:_[0-9a-f]{2})+)")
_MOST_CHARACTERS: Final = 63
_LABEL_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}\Z")
#: Of the 64 that Compute Engine allows, ours take the rest.
_MOST_USER_LABELS: Final = 48


def check_user_labels(user_labels: Mapping[str, str]) -> None:
    """Raises ConfigurationInvalid."""
    if len(user_labels) > _MOST_USER_LABELS:
        raise ConfigurationInvalid(
            f"user_labels of gcp can have {_MOST_USER_LABELS} labels at most"
        )
    for name, value in user_labels.items():
        if not _LABEL_NAME.match(name) or not _LABEL_VALUE.match(value):
            raise ConfigurationInvalid(
                f"user_labels of gcp has {name!r}={value!r}; Google Cloud allows"
                f" {_MOST_CHARACTERS} lower-case letters, digits, _ and -, and a letter first in"
                " names"
            )
        if name.startswith(PREFIX):
            raise ConfigurationInvalid(
                f"user_labels of gcp cannot have {name!r}: names that begin with {PREFIX!r} are"
                " this library's"
            )


def for_fleet(
    tags: FleetTags, user_labels: Mapping[str, str], more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The labels of a resource.

    Args:
        more: labels of ours that only this resource has, by name, escaped here.

    Raises ConfigurationInvalid: the deployment is too long.
    """
    texts = {**_texts(tags), **(more or {})}
    values = {name: escaped(text) for name, text in texts.items()}
    for name, value in values.items():
        if len(value) > _MOST_CHARACTERS:
            raise ConfigurationInvalid(
                f"{name.removeprefix(PREFIX)} {texts[name]!r} is longer than the"
                f" {_MOST_CHARACTERS} characters of a label on Google Cloud; one that is no"
                " lower-case letter, digit or hyphen takes three or more of them"
            )
    return {**user_labels, **values}


def description(tags: FleetTags, region: str) -> str:
    """The description of a firewall rule for a region tag."""
    return json.dumps({**_texts(tags), REGION: region}, separators=(",", ":"))


def described(text: str) -> tuple[FleetTags, str] | None:
    """What `description` wrote: tags and region; None if the rule is none of ours."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    texts = {name: value for name, value in found.items() if isinstance(value, str)}
    fleet, region = _fleet_of(texts), texts.get(REGION)
    return (fleet, region) if fleet is not None and region else None


def fleet_of(labels: Mapping[str, str]) -> FleetTags | None:
    """The fleet of a resource; None if it is none of ours."""
    return _fleet_of({name: unescaped(value) for name, value in labels.items()})


def filter_of_fleet(fleet_key: str) -> str:
    """The filter of a list call for one fleet."""
    return f'labels.{FLEET}="{escaped(fleet_key)}"'


def filter_of_deployment(deployment: str) -> str:
    """The filter of a list call for all fleets of a deployment."""
    return f'labels.{DEPLOYMENT}="{escaped(deployment)}"'


def escaped(text: str) -> str:
    """Text in the alphabet of this module."""
    return _OTHER.sub(lambda found: "".join(f"_{byte:02x}" for byte in found[0].encode()), text)


def unescaped(text: str) -> str:
    """The text of a value; what is no escape stands for itself."""
    return _ESCAPED.sub(
        lambda found: bytes.fromhex(found[1].replace("_", "")).decode(errors="replace"), text
    )


def _texts(tags: FleetTags) -> dict[str, str]:
    return {f"{PREFIX}{name}": text for name, text in tags.to_texts().items()}


def _fleet_of(texts: Mapping[str, str]) -> FleetTags | None:
    """The tags in texts as `_texts` makes them."""
    return FleetTags.from_texts(
        {name.removeprefix(PREFIX): text for name, text in texts.items() if name.startswith(PREFIX)}
    )
