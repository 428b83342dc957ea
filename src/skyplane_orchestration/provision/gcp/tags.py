"""Labels and names of a fleet's resources, and the description of its firewall rules.

Values of labels have lower-case letters, digits and hyphens; `_` begins an escape. A value of more
than 63 characters is refused. Firewall rules have no labels: the same tags stand in their
description, as JSON. Names have at most 63 lower-case letters, digits and hyphens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import parse_region_tag
from skyplane_orchestration.provision.fleet.machines import FleetTags
from skyplane_orchestration.provision.fleet.tags import TagAlphabet, check_count

ALPHABET: Final = TagAlphabet(
    cloud="Google Cloud",
    kind="label",
    prefix="skyplane_",
    hyphen="_",
    most_characters=63,
    refused=re.compile(r"[^a-z0-9-]"),
    escape="_",
)
#: Of descriptions.
_REGION: Final = ALPHABET.name("region")

_LABEL_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}\Z")
#: Of the 64 that Compute Engine allows, ours take the rest.
_MOST_USER_LABELS: Final = 48

_NAME_PREFIX: Final = "skyplane-"
#: 80 bits of a fleet's key. The whole key stands in labels and descriptions, which are compared.
_KEY_CHARACTERS: Final = 20
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")


def check_user_labels(user_labels: Mapping[str, str]) -> None:
    """Raises ConfigurationInvalid."""
    check_count("user_labels of gcp", user_labels, _MOST_USER_LABELS, "label")
    for name, value in user_labels.items():
        if not _LABEL_NAME.match(name) or not _LABEL_VALUE.match(value):
            raise ConfigurationInvalid(
                f"user_labels of gcp has {name!r}={value!r}; Google Cloud allows"
                f" {ALPHABET.most_characters} lower-case letters, digits, _ and -, and a letter"
                " first in names"
            )
        if name.startswith(ALPHABET.prefix):
            raise ConfigurationInvalid(
                f"user_labels of gcp cannot have {name!r}: names that begin with"
                f" {ALPHABET.prefix!r} are this library's"
            )


def description(tags: FleetTags, region: str) -> str:
    """The description of a firewall rule for a region tag."""
    texts = {ALPHABET.name(short): text for short, text in tags.to_texts().items()}
    return json.dumps({**texts, _REGION: region}, separators=(",", ":"))


def described(text: str) -> tuple[FleetTags, str] | None:
    """What `description` wrote: tags and region; None if the rule is none of ours."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    texts = {name: value for name, value in found.items() if isinstance(value, str)}
    region = texts.get(_REGION)
    prefix = ALPHABET.prefix
    fleet = FleetTags.from_texts(
        {name.removeprefix(prefix): text for name, text in texts.items() if name.startswith(prefix)}
    )
    return (fleet, region) if fleet is not None and region else None


def filter_of(short: str, text: str) -> str:
    """The filter of a list call for what has this text in a label."""
    return f'labels.{ALPHABET.name(short)}="{ALPHABET.escaped(text)}"'


def fleet_prefix(fleet_key: str) -> str:
    """The begin of all names of a fleet; of all fleets for an empty key."""
    return f"{_NAME_PREFIX}{fleet_key[:_KEY_CHARACTERS]}-" if fleet_key else _NAME_PREFIX


def network_tag(fleet_key: str, region: str) -> str:
    """The network tag of a fleet's instances in a region."""
    return fleet_prefix(fleet_key) + parse_region_tag(region).name


def instance_name(fleet_key: str, instance: str, number: int) -> str:
    """The name of an instance: two of one zone cannot share it.

    Args:
        instance: its name in the fleet, `gcp:us-central1/0`.
        number: above 0 while names with smaller ones belong to instances that have stopped.
    """
    part = _NOT_IN_NAMES.sub("-", instance.removeprefix("gcp:"))
    return f"{fleet_prefix(fleet_key)}{part}-{number}"
