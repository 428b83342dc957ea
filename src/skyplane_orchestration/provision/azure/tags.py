"""A fleet's resources on Azure: their tags, their names, and their form in JSON.

Azure takes any text of up to 256 characters as a value, so nothing is escaped. Names are
made of the fleet key, so every worker makes the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, cast

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import parse_region_tag
from skyplane_orchestration.provision.fleet.machines import Instance, LaunchRequest
from skyplane_orchestration.provision.fleet.tags import TagAlphabet, check_count

#: A resource as Azure writes it in JSON.
Resource = dict[str, Any]

ALPHABET: Final = TagAlphabet("Azure", "tag", prefix="skyplane:", hyphen="-", most_characters=256)

#: Azure keeps these for itself, in any case.
_RESERVED: Final = ("azure", "microsoft", "windows")
_FORBIDDEN: Final = frozenset("<>%&\\?/")
#: Of a virtual machine; the other resources allow longer ones.
_MOST_NAME_CHARACTERS: Final = 512
#: The only subnet of a fleet's own virtual network.
SUBNET: Final = "gateways"
#: Of the 50 that Azure allows, ours take the rest.
_MOST_USER_TAGS: Final = 40


def check_user_tags(user_tags: Mapping[str, str]) -> None:
    """Raises ConfigurationInvalid."""
    check_count("user_tags of azure", user_tags, _MOST_USER_TAGS, "tag")
    prefix, most = ALPHABET.prefix, ALPHABET.most_characters
    for name, value in user_tags.items():
        if not name or len(name) > _MOST_NAME_CHARACTERS or not _FORBIDDEN.isdisjoint(name):
            raise ConfigurationInvalid(
                f"user_tags of azure has the name {name!r}; Azure allows {_MOST_NAME_CHARACTERS}"
                f" characters, and none of {' '.join(sorted(_FORBIDDEN))}"
            )
        if len(value) > most:
            raise ConfigurationInvalid(
                f"user_tags of azure has a value for {name!r} that is longer than {most} characters"
            )
        if name.lower().startswith((prefix, *_RESERVED)):
            raise ConfigurationInvalid(
                f"user_tags of azure cannot have {name!r}: names that begin with {prefix!r} are"
                f" this library's, and what begins with {', '.join(_RESERVED)} is Azure's"
            )


def filter_of_deployment(deployment: str) -> str:
    """The filter of a list of resource groups for the fleets of a deployment."""
    quoted = deployment.replace("'", "''")
    return f"tagName eq '{ALPHABET.name('deployment')}' and tagValue eq '{quoted}'"


def properties_of(resource: Resource) -> Resource:
    return cast("Resource", resource.get("properties") or {})


def group_name(fleet_key: str) -> str:
    return f"skyplane-{fleet_key}"


def firewall_name(region: str) -> str:
    """The network security group of a region."""
    return f"firewall-{parse_region_tag(region).name}"


def network_name(region: str) -> str:
    """The virtual network of a region."""
    return f"network-{parse_region_tag(region).name}"


def machine_name(request: LaunchRequest, number: int, zone: str) -> str:
    """The virtual machine of a launch number in a zone, which is empty for none."""
    parts = (request.tags.fleet_key, request.instance, str(number), zone)
    return f"gw-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:24]}"


def interface_name(machine: str) -> str:
    return f"{machine}-nic"


def address_name(machine: str) -> str:
    """The public address."""
    return f"{machine}-ip"


def disk_name(machine: str) -> str:
    return f"{machine}-disk"


def cloud_id(machine: str, unique_id: str) -> str:
    """Unique for each machine that ever was: Azure allows a name again once it is free."""
    return f"{machine}/{unique_id}"


def machine_of(instance: Instance) -> str:
    """The name of an instance's virtual machine."""
    return instance.cloud_id.partition("/")[0]
