"""Placeholders in the texts of a job, such as `{partition_key}`, and what takes their place.

A doubled brace stands for one of the text itself. Every other form of braces is refused: it would
name another place than its author meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from glob import escape
from typing import Any, Final
from urllib.parse import quote

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location, named_location

#: Name of a placeholder -> what takes its place.
Values = Mapping[str, str]

#: Names of placeholders: the key of the materialized partition; in a manifest, that of the asset.
PARTITION_KEY: Final = "partition_key"
ASSET_KEY: Final = "asset_key"

#: A template of Jinja, which nothing renders here; doubled braces; a placeholder; a brace.
_FORMS: Final = re.compile(
    r"\{\{(?:\s[^{}]*\s|partition_key(?:\.[^{}]*)?|asset_key)\}\}"
    r"|\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]"
)


def names_in(text: str) -> set[str]:
    return {found["name"] for found in _FORMS.finditer(text) if found["name"] is not None}


def filled(place: str, text: str, values: Values, write: Callable[[str], str] = str) -> str:
    """The text with values in place of its placeholders, and single braces for doubled ones.

    Args:
        place: where the text stands, for errors.
        write: how the text holds a value.

    Raises ConfigurationInvalid: another form of braces, or a value that leaves its folder.
    """

    def one(found: re.Match[str]) -> str:
        form, name = found[0], found["name"]
        if form in ("{{", "}}"):
            return form[0]
        if name not in values:
            known = ", ".join(f"{{{known}}}" for known in values) or "no placeholder"
            without = "" if PARTITION_KEY in values else "without partitions_def "
            literal = "" if form.startswith("{{") else "; write a brace of the text itself twice"
            raise ConfigurationInvalid(
                f"{place}: {form} in {text!r} has no value; {without}use {known}{literal}"
            )
        if not {"", ".", ".."}.isdisjoint(re.split(r"[/\\]", values[name])):
            raise ConfigurationInvalid(
                f"{place}: {{{name}}} of {text!r} cannot be {values[name]!r}, which leads out of "
                "its folder; a key has no empty part between slashes, and none that is . or .."
            )
        return write(values[name])

    return _FORMS.sub(one, text)


def filled_url(place: str, url: str, values: Values) -> str:
    """A URL or path, as `filled`. Raises ConfigurationInvalid: a value changes the bucket."""
    is_encoded = url.startswith(("http://", "https://"))
    made = filled(place, url, values, quote if is_encoded else str)
    before, after = Location(url), Location(made)
    meant = [filled(place, part, values) for part in (before.bucket, before.key)]
    if meant != [after.bucket, after.key]:
        raise ConfigurationInvalid(
            f"{place}: {url!r} would become {made!r}, which is another bucket or folder than it "
            f"names; it must be {'/'.join(meant)}"
        )
    return made


def location_of(place: str, given: Location | str) -> Location:
    """The location of an argument, `place`. Raises InvalidLocation."""
    return given if isinstance(given, Location) else named_location({"url": given}, {"url": place})


def unpartitioned(place: str, location: Location | str) -> Location:
    """A location without placeholders. Raises ConfigurationInvalid if it has some."""
    given = location_of(place, location)
    return replace(given, url=filled_url(place, given.url, {}))


#: Texts of a job that take placeholders.
_FILLED: Final[Mapping[str, Callable[[str, str, Values], str]]] = {
    "source.url": filled_url,
    "destination.url": filled_url,
    **dict.fromkeys(("include", "exclude", "publish_last"), partial(filled, write=escape)),
    "files_from": filled,
}


def filled_job(job: TransferJob, values: Values) -> TransferJob:
    """The job with its texts filled. Raises ConfigurationInvalid, as `filled` and `TransferJob`."""
    return TransferJob.from_dict(_filled_value("", job.to_dict(), values))


def _filled_value(place: str, value: Any, values: Values) -> Any:
    if isinstance(value, Mapping):
        start = f"{place}." if place else ""
        return {name: _filled_value(start + name, one, values) for name, one in value.items()}
    if isinstance(value, list):
        return [_filled_value(place, one, values) for one in value]
    if not isinstance(value, str):
        return value
    if place in _FILLED:
        return _FILLED[place](place, value, values)
    if "{" in value or "}" in value:
        raise ConfigurationInvalid(
            f"{place} takes no braces, and has {value!r}; placeholders are for {', '.join(_FILLED)}"
        )
    return value
