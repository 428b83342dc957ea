"""Headers and user metadata that a job sets on the objects that it writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any, Final

from skyplane_gateway.common.mtime import MTIME
from skyplane_gateway.common.objects import HEADERS, ObjectAttributes
from skyplane_gateway.common.source_version import NAME
from skyplane_gateway.common.wording import FieldName, Text, with_fields
from skyplane_orchestration.errors import ConfigurationInvalid

#: Only S3 keeps it.
EXPIRES: Final = "expires"
#: Header -> the argument for it, for those that have one of their own.
_OWN: Final = {"content-type": "content_type", "cache-control": "cache_control"}
_ATTRIBUTES: Final = {header: name for name, header in HEADERS.items()}
#: What all stores take as a name of user metadata.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
#: Texts of HTTP headers: printable characters of ASCII.
_TEXT: Final = re.compile(r"[ -~]+")


def written_attributes(
    content_type: str | None,
    cache_control: str | None,
    headers: Mapping[str, str],
    metadata: Mapping[str, str],
) -> ObjectAttributes | None:
    """The attributes that replace those of the source; None for none.

    Args:
        headers: by name, in any case; Expires is no attribute, see `expires_of`.

    Raises ConfigurationInvalid.
    """
    found: dict[str, Any] = {}
    for header, text in (("content-type", content_type), ("cache-control", cache_control)):
        if text is not None:
            found[_ATTRIBUTES[header]] = _checked(Text(FieldName(_OWN[header])), text)
    for name, text in headers.items():
        attribute = _ATTRIBUTES.get(name.lower())
        if name.lower() != EXPIRES and attribute is None:
            known = ", ".join(one.title() for one in (*_ATTRIBUTES, EXPIRES))
            refusal = "{headers} cannot set {name!r}; it can set {known}"
            raise ConfigurationInvalid.about(refusal, name=name, known=known)
        if attribute is not None and attribute in found:
            refusal = "{headers} sets {name!r} again"
            if name.lower() in _OWN:
                refusal += ", as does {other}"
            raise ConfigurationInvalid.about(refusal, name=name, other=FieldName(attribute))
        if attribute is not None:
            found[attribute] = _checked(with_fields("{headers} {name!r}", name=name), text)
    rows = {_metadata_name(name): _metadata_text(name, text) for name, text in metadata.items()}
    if not found and not rows:
        return None
    return ObjectAttributes(**found, metadata=tuple(sorted(rows.items())))


def expires_of(headers: Mapping[str, str]) -> str | None:
    """The header Expires as HTTP writes it; None where it is not set.

    Takes that form, or a time of RFC 3339 with its zone. Raises ConfigurationInvalid.
    """
    text = next((text for name, text in headers.items() if name.lower() == EXPIRES), None)
    if text is None:
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            time = read(text)
        except ValueError:
            continue
        if time.tzinfo is not None:
            return format_datetime(time.astimezone(UTC), usegmt=True)
    raise ConfigurationInvalid.about(
        "{headers} 'Expires' must be a time with its zone, such as 2027-01-31T06:00:00Z, not "
        "{given!r}",
        given=text,
    )


def _checked(name: str, text: str) -> str:
    if not _TEXT.fullmatch(text):
        raise ConfigurationInvalid(
            name + f" must be a text of printable characters of ASCII, not {text!r}"
        )
    return text


def _metadata_name(name: str) -> str:
    lower = name.lower()
    if lower in (NAME, MTIME):
        raise ConfigurationInvalid.about(
            "{object_metadata} cannot set {name!r}: copies are known by it", name=name
        )
    if not _NAME.fullmatch(name):
        raise ConfigurationInvalid.about(
            "{object_metadata} must have names of letters, digits, _, - and dots, not {name!r}",
            name=name,
        )
    return lower


def _metadata_text(name: str, text: str) -> str:
    if not text.isprintable():
        raise ConfigurationInvalid.about(
            "{object_metadata} {name!r} must be a printable text, not {given!r}",
            name=name,
            given=text,
        )
    return text
