"""Tags of a fleet's resources on AWS.

Values have letters, digits, spaces and `_.:/+-@` only. Any other character, `=` included, is
written as `=` and two hexadecimal digits per byte of its UTF-8. So no value holds a wildcard of
a filter, and none begins with `aws:`, which AWS keeps for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.fleet.machines import FleetTags

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, TagTypeDef

PREFIX: Final = "skyplane:"
FLEET: Final = f"{PREFIX}fleet"
DEPLOYMENT: Final = f"{PREFIX}deployment"
INSTANCE: Final = f"{PREFIX}instance"
LAUNCH: Final = f"{PREFIX}launch"
KEY: Final = f"{PREFIX}key"
_NAME: Final = "Name"

_RESERVED: Final = "aws:"
_OTHER: Final = re.compile(r"[^A-Za-z0-9 _.:/+\-@]")
_ESCAPED: Final = re.compile(r"((?:=[0-9A-F]{2})+)")
_ALLOWED: Final = re.compile(r"[\w\s.:/=+\-@]*\Z")
_MOST_NAME_CHARACTERS: Final = 128
_MOST_VALUE_CHARACTERS: Final = 256
#: Of the 50 that AWS allows, ours and `Name` take the rest.
_MOST_USER_TAGS: Final = 40


def check_user_tags(user_tags: Mapping[str, str]) -> None:
    """Raises ConfigurationInvalid."""
    if len(user_tags) > _MOST_USER_TAGS:
        raise ConfigurationInvalid(f"user_tags of aws can have {_MOST_USER_TAGS} tags at most")
    for name, value in user_tags.items():
        for text, most in ((name, _MOST_NAME_CHARACTERS), (value, _MOST_VALUE_CHARACTERS)):
            if len(text) > most or not _ALLOWED.match(text):
                raise ConfigurationInvalid(
                    f"user_tags of aws has {text!r}; AWS allows {most} letters, digits, spaces"
                    " and _.:/=+-@"
                )
        if not name or name.startswith((PREFIX, _RESERVED)) or value.startswith(_RESERVED):
            raise ConfigurationInvalid(
                f"user_tags of aws cannot have {name!r}={value!r}: names that begin with"
                f" {PREFIX!r} are this library's, and what begins with {_RESERVED!r} is AWS's"
            )


def for_fleet(
    tags: FleetTags, user_tags: Mapping[str, str], more: Mapping[str, str] | None = None
) -> list[TagTypeDef]:
    """The tags of a resource.

    Args:
        more: tags of ours that only this resource has, by name, escaped here.

    Raises ConfigurationInvalid: the deployment is too long.
    """
    texts = {**{_tag(name): text for name, text in tags.to_texts().items()}, **(more or {})}
    values = {name: escaped(text) for name, text in texts.items()}
    for name, value in values.items():
        if len(value) > _MOST_VALUE_CHARACTERS:
            raise ConfigurationInvalid(
                f"{name.removeprefix(PREFIX)} {value!r} is longer than the"
                f" {_MOST_VALUE_CHARACTERS} characters of a tag on AWS"
            )
    shown = {_NAME: f"skyplane {tags.fleet_key[:8]} {values.get(INSTANCE, '')}".rstrip()}
    return [
        {"Key": name, "Value": value} for name, value in {**shown, **user_tags, **values}.items()
    ]


def as_mapping(tags: Iterable[Any]) -> dict[str, str]:
    """Name -> value of tags as AWS lists them."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags}


def fleet_of(tags: Mapping[str, str]) -> FleetTags | None:
    """The fleet of a resource; None if it is none of ours."""
    texts = {
        name.removeprefix(PREFIX).replace("-", "_"): unescaped(value)
        for name, value in tags.items()
        if name.startswith(PREFIX)
    }
    return FleetTags.from_texts(texts)


def of_fleet(fleet_key: str) -> list[FilterTypeDef]:
    """The filter of a Describe call for one fleet."""
    return [{"Name": f"tag:{FLEET}", "Values": [fleet_key]}]


def of_deployment(deployment: str) -> list[FilterTypeDef]:
    """The filter of a Describe call for all fleets of a deployment."""
    return [{"Name": f"tag:{DEPLOYMENT}", "Values": [escaped(deployment)]}]


def escaped(text: str) -> str:
    """Text in the alphabet of this module."""
    plain = _OTHER.sub(_hexadecimal, text)
    if plain.startswith(_RESERVED):
        plain = _hexadecimal(plain[0]) + plain[1:]
    return plain


def unescaped(text: str) -> str:
    """The text of a value; what is no escape stands for itself."""
    return _ESCAPED.sub(
        lambda found: bytes.fromhex(found[1].replace("=", "")).decode(errors="replace"), text
    )


def _hexadecimal(found: re.Match[str] | str) -> str:
    character = found if isinstance(found, str) else found[0]
    return "".join(f"={byte:02X}" for byte in character.encode())


def _tag(name: str) -> str:
    """The tag of a short name, such as `hard_end`."""
    return PREFIX + name.replace("_", "-")
