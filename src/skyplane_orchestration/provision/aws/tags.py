"""Tags of a fleet's resources on AWS.

Values have letters, digits, spaces and `_.:/+-@` only; `=` begins an escape. So no value holds a
wildcard of a filter, and none begins with `aws:`, which AWS keeps for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.fleet.machines import FleetTags
from skyplane_orchestration.provision.fleet.tags import INSTANCE, TagAlphabet, check_count

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, TagTypeDef

_RESERVED: Final = "aws:"
ALPHABET: Final = TagAlphabet(
    cloud="AWS",
    kind="tag",
    prefix="skyplane:",
    hyphen="-",
    most_characters=256,
    refused=re.compile(r"[^A-Za-z0-9 _.:/+\-@]"),
    escape="=",
    is_upper=True,
    reserved=_RESERVED,
)
FLEET: Final = ALPHABET.name("fleet")

_ALLOWED: Final = re.compile(r"[\w\s.:/=+\-@]*\Z")
_MOST_NAME_CHARACTERS: Final = 128
#: Of the 50 that AWS allows, ours and `Name` take the rest.
_MOST_USER_TAGS: Final = 40


def check_user_tags(user_tags: Mapping[str, str]) -> None:
    """Raises ConfigurationInvalid."""
    check_count("user_tags of aws", user_tags, _MOST_USER_TAGS, "tag")
    prefix = ALPHABET.prefix
    for name, value in user_tags.items():
        for text, most in ((name, _MOST_NAME_CHARACTERS), (value, ALPHABET.most_characters)):
            if len(text) > most or not _ALLOWED.match(text):
                raise ConfigurationInvalid(
                    f"user_tags of aws has {text!r}; AWS allows {most} letters, digits, spaces"
                    " and _.:/=+-@"
                )
        if not name or name.startswith((prefix, _RESERVED)) or value.startswith(_RESERVED):
            raise ConfigurationInvalid(
                f"user_tags of aws cannot have {name!r}={value!r}: names that begin with"
                f" {prefix!r} are this library's, and what begins with {_RESERVED!r} is AWS's"
            )


def for_fleet(tags: FleetTags, user_tags: Mapping[str, str], **more: str) -> list[TagTypeDef]:
    """See `TagAlphabet.written`; the web console shows `Name`."""
    shown = f"skyplane {tags.fleet_key[:8]} {ALPHABET.escaped(more.get(INSTANCE, ''))}".rstrip()
    named = ALPHABET.written(tags, {"Name": shown, **user_tags}, **more)
    return [{"Key": name, "Value": value} for name, value in named.items()]


def as_mapping(tags: Iterable[Any]) -> dict[str, str]:
    """Name -> value of tags as AWS lists them."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags}


def filter_of(short: str, text: str) -> list[FilterTypeDef]:
    """The filter of a Describe call for what has this text in a tag."""
    return [{"Name": f"tag:{ALPHABET.name(short)}", "Values": [ALPHABET.escaped(text)]}]
