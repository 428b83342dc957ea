"""How the tags of fleets are written in the alphabet of a cloud, and read again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.fleet.machines import FleetTags, Instance, InstanceState

#: Short names of the tags that instances have besides those of their fleet.
INSTANCE: Final = "instance"
LAUNCH: Final = "launch"
KEY: Final = "key"


@dataclass(frozen=True, slots=True)
class TagAlphabet:
    """How a cloud writes tags.

    A character outside the alphabet is written as `escape` and two hexadecimal digits per byte of
    its UTF-8, so every value can be read back.

    Args:
        cloud: as people write it, for messages.
        user_names, user_values: forms of tags of users. No name of theirs is one of ours.
        user_rule: what both allow, in words.
        kind: the cloud's word for a tag.
        prefix: begins the names of our tags.
        hyphen: between the words of a name.
        most_characters: of a value.
        most_user_tags: of those that a resource may have, ours take the rest.
        refused: a character that values cannot have, `escape` included; None if they have any.
        escape: empty without `refused`.
        reserved: no value may begin with it.
    """

    cloud: str
    user_names: re.Pattern[str]
    user_values: re.Pattern[str]
    user_rule: str
    kind: str = "tag"
    prefix: str = "skyplane:"
    hyphen: str = "-"
    most_characters: int = 256
    most_user_tags: int = 40
    refused: re.Pattern[str] | None = None
    escape: str = ""
    reserved: str = ""

    def check_user_tags(self, what: str, user_tags: Mapping[str, str]) -> None:
        """Raise ConfigurationInvalid for tags of the user that no resource can have.

        Args:
            what: their setting, `user_tags of aws`.
        """
        if len(user_tags) > self.most_user_tags:
            raise ConfigurationInvalid(
                f"{what} can have {self.most_user_tags} {self.kind}s at most"
            )
        for name, value in user_tags.items():
            if not self.user_names.match(name) or not self.user_values.match(value):
                raise ConfigurationInvalid(
                    f"{what} cannot have {name!r}={value!r}: {self.cloud} allows {self.user_rule};"
                    f" names that begin with {self.prefix!r} are this library's"
                )

    def name(self, short: str) -> str:
        """The tag of a short name, such as `hard_end`."""
        return self.prefix + short.replace("_", self.hyphen)

    def written(self, tags: FleetTags, user_tags: Mapping[str, str], **more: str) -> dict[str, str]:
        """The tags of a resource; ours win.

        Args:
            more: short name -> value of tags that only this resource has.

        Raises ConfigurationInvalid: the deployment is too long.
        """
        texts = {**tags.to_texts(), **more}
        values = {short: self.escaped(text) for short, text in texts.items()}
        for short, value in values.items():
            if len(value) > self.most_characters:
                raise ConfigurationInvalid(
                    f"{short} {texts[short]!r} is longer than the {self.most_characters} characters"
                    f" of a {self.kind} on {self.cloud}"
                    + ("; special ones take three or more of them" if self.escape else "")
                )
        return {**user_tags, **{self.name(short): value for short, value in values.items()}}

    def fleet_of(self, named: Mapping[str, str] | None) -> FleetTags | None:
        """The fleet of a resource; None if it is none of ours."""
        return FleetTags.from_texts(
            {
                name.removeprefix(self.prefix).replace(self.hyphen, "_"): self.unescaped(value)
                for name, value in (named or {}).items()
                if name.startswith(self.prefix)
            }
        )

    def check_owner(self, what: str, named: Mapping[str, str] | None, fleet: FleetTags) -> None:
        """Raise ConfigurationInvalid for tags of something that has a fleet's name and no other.

        Args:
            what: the thing, for messages.
        """
        found = self.fleet_of(named)
        if found is None or (found.fleet_key, found.deployment) != (
            fleet.fleet_key,
            fleet.deployment,
        ):
            raise ConfigurationInvalid(
                f"{what} does not have the {self.kind}s of fleet {fleet.fleet_key} of"
                f" {fleet.deployment!r}; delete it, or give it the {self.kind}s again"
            )

    def instance_of(
        self,
        named: Mapping[str, str],
        region: str,
        *,
        cloud_id: str,
        state: InstanceState,
        address: str,
        launched_unix_s: float,
        why_ended: str,
        internal_address: str = "",
    ) -> Instance | None:
        """An instance by its tags, and by what its cloud says of it; None if it is none of ours."""
        fleet = self.fleet_of(named)
        if fleet is None:
            return None
        return Instance(
            tags=fleet,
            instance=self.value(named, INSTANCE) or f"{region}/?",
            region=region,
            cloud_id=cloud_id,
            state=state,
            address=address,
            launch_id=self.value(named, LAUNCH),
            key_id=self.value(named, KEY),
            launched_unix_s=launched_unix_s,
            why_ended=why_ended,
            internal_address=internal_address,
        )

    def value(self, named: Mapping[str, str], short: str) -> str:
        """The text of a tag; empty if the resource does not have it."""
        return self.unescaped(named.get(self.name(short), ""))

    def escaped(self, text: str) -> str:
        """Text in the alphabet."""
        plain = text if self.refused is None else self.refused.sub(self._hexadecimal, text)
        if self.reserved and plain.startswith(self.reserved):
            plain = self._hexadecimal(plain[0]) + plain[1:]
        return plain

    def unescaped(self, text: str) -> str:
        """The text of a value; what is no escape stands for itself."""
        if not self.escape:
            return text
        return re.sub(
            rf"((?:{re.escape(self.escape)}[0-9a-f]{{2}})+)",
            lambda found: bytes.fromhex(found[1].replace(self.escape, "")).decode(errors="replace"),
            text,
        )

    def _hexadecimal(self, found: re.Match[str] | str) -> str:
        character = found if isinstance(found, str) else found[0]
        return "".join(f"{self.escape}{byte:02x}" for byte in character.encode())
