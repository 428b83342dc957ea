"""What a copy keeps of its source beside headers and user metadata: class, tags and time.

Classes are matched by their minimum storage time: 30 days, 90 days. Only classes whose objects can
be read at once are written, since a copy is read back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from skyplane_gateway.common.encoded_words import fits, fits_name
from skyplane_gateway.common.mtime import MTIME
from skyplane_gateway.common.objects import (
    HEADERS,
    PROJECT_FOLDER,
    ObjectAttributes,
    ObjectInfo,
    StoreSpec,
    Tags,
)
from skyplane_gateway.common.source_version import NAME, Mark, version_of

#: Kind of store -> classes that its option `storage-class` may name, the usual one first.
CLASSES: Final = {
    "s3": (
        "STANDARD",
        "STANDARD_IA",
        "ONEZONE_IA",
        "INTELLIGENT_TIERING",
        "GLACIER_IR",
        "REDUCED_REDUNDANCY",
    ),
    "gcs": ("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE"),
    "azure": ("Hot", "Cool", "Cold"),
}
#: The value of an option that stands for "as the source has it".
KEEP: Final = "keep"
#: The option of a destination about text that its headers cannot hold, with its values.
NON_ASCII: Final = "non-ascii"
NON_ASCII_RULES: Final = ("encode", "omit")

#: Kind of store -> its classes for 30 and for 90 days.
_COOLER: Final = {
    "s3": ("STANDARD_IA", "GLACIER_IR"),
    "gcs": ("NEARLINE", "COLDLINE"),
    "azure": ("Cool", "Cold"),
}
#: Class of a source -> index in `_COOLER`. The other classes have no equal elsewhere.
_INDEXES: Final = {
    "STANDARD_IA": 0,
    "ONEZONE_IA": 0,
    "GLACIER_IR": 1,
    "NEARLINE": 0,
    "COLDLINE": 1,
    "ARCHIVE": 1,
    "Cool": 0,
    "Cold": 1,
}
#: Kind of store that has tags -> what their texts may hold; S3 takes letters of any alphabet.
_TAG_TEXT: Final = {
    "s3": re.compile(r"[\w\s+\-.:/=@]*"),
    "azure": re.compile(r"[A-Za-z0-9 +\-./:=_]*"),
}
#: Only AWS itself writes tags of such names.
_RESERVED_TAG: Final = "aws:"
_MAX_TAGS: Final = 10
_MAX_TAG_NAME: Final = 128
_MAX_TAG_VALUE: Final = 256


@dataclass(frozen=True, slots=True)
class KeptProperties:
    """What the copies of one transfer keep, by the options of its stores.

    Attributes:
        kind: of the destination's store.
        tags: the source reads them.
        storage_class: the destination sets the class that matches the source's.
        attributes: the destination keeps headers and user metadata, or the source has none.
        source_kind: of the source's store.
        omits_non_ascii: the copy lacks what no header can hold, in place of its encoded form.
        sets: headers and user metadata of all copies; see `with_values`.
    """

    kind: str
    tags: bool
    storage_class: bool
    attributes: bool = True
    source_kind: str = ""
    omits_non_ascii: bool = False
    sets: ObjectAttributes | None = None

    def of_source(self, info: ObjectInfo) -> ObjectInfo:
        """A row of the source's listing, or its `head`, with the attributes of the copy.

        A listing gives no verdict about tags that another request tells.
        """
        is_plain = info.attributes is None and info.storage_class is None
        if is_plain and not (self.tags or self.storage_class):
            return info
        attributes, lacks = info.attributes, set(info.not_carried)
        # One that nobody has chosen, but the account's default, is not kept.
        chosen = info.storage_class if "storage-class" in lacks else None
        kept = self.class_of(chosen) if self.storage_class else None
        if kept is not None:
            lacks.discard("storage-class")
        if attributes is not None:
            tags = holdable_tags(self.tags_for, attributes.tags)
            attributes = replace(attributes, tags=tags, storage_class=kept)
        if self.tags and (attributes is None or attributes.tags):
            lacks.discard("tags")
        names = tuple(name for name in info.not_carried if name in lacks)
        if attributes is not None:
            attributes, lost = self.of_copy(attributes)
            names += lost
        return replace(info, attributes=attributes, not_carried=names, storage_class=kept)

    def of_copy(self, attributes: ObjectAttributes) -> tuple[ObjectAttributes, tuple[str, ...]]:
        """The headers and user metadata of a copy, and the names of what is left out."""
        found = with_values(attributes, self.sets)
        return in_headers(found) if self.omits_non_ascii else (found, ())

    def mark_of(self, source: ObjectInfo) -> Mark | None:
        """What the copy of that version stores to be known by; None where it needs nothing."""
        if self.source_kind == "file":
            return None  # The copy has the file's time already.
        if self.kind == "file":
            return MTIME, f"{source.last_modified:.6f}"
        if self.source_kind == self.kind == "gcs":
            return None  # Both listings have the CRC32C.
        return NAME, version_of(self.source_kind, source)

    @property
    def tags_for(self) -> str:
        """Kind of store that gets the tags; empty where the source does not read them."""
        return self.kind if self.tags else ""

    def class_of(self, name: str | None) -> str | None:
        """The class at the destination for one of the source; None for its default."""
        classes = CLASSES.get(self.kind, ())
        if name is None:
            return classes[0] if classes else None
        if name in classes:
            return name
        index = _INDEXES.get(name)
        return _COOLER[self.kind][index] if index is not None and classes else None


#: Of a part, whose upload has the attributes; and of a copy between stores without options.
PLAIN: Final = KeptProperties("", tags=False, storage_class=False)


def kept_properties_of(source: StoreSpec, destination: StoreSpec) -> KeptProperties:
    """By the options of both stores."""
    # Files have no class, so their copies get the bucket's default.
    storage_class = destination.option("storage-class") == KEEP and source.kind != "file"
    attributes = destination.kind != "file" or source.kind == "file"
    return KeptProperties(
        destination.kind,
        source.option("tags") == KEEP,
        storage_class,
        attributes,
        source.kind,
        destination.option(NON_ASCII) == NON_ASCII_RULES[1],
    )


def in_headers(attributes: ObjectAttributes) -> tuple[ObjectAttributes, tuple[str, ...]]:
    """The attributes that headers hold as they are, and the names of what is left out."""
    rows = tuple(row for row in attributes.metadata if fits_name(row[0]) and fits(row[1]))
    odd = [field for field in HEADERS if not fits(getattr(attributes, field) or "")]
    lost = [HEADERS[field] for field in odd]
    if rows != attributes.metadata:
        lost.append("user-metadata")
    if not lost:
        return attributes, ()
    nothing: dict[str, Any] = dict.fromkeys(odd)
    return replace(attributes, metadata=rows, **nothing), tuple(lost)


def with_values(attributes: ObjectAttributes, sets: ObjectAttributes | None) -> ObjectAttributes:
    """The attributes of a source with those that its job sets in their place."""
    if sets is None:
        return attributes
    given = {name: getattr(sets, name) for name in HEADERS}
    rows = {**dict(attributes.metadata), **dict(sets.metadata)}
    headers = {name: text for name, text in given.items() if text is not None}
    return replace(attributes, **headers, metadata=tuple(sorted(rows.items())))


def holdable_tags(kind: str, tags: Tags) -> Tags:
    """The tags for a store of that kind: all, or none where it cannot hold each of them."""
    text = _TAG_TEXT.get(kind)
    are_held = (
        text is not None
        and len(tags) <= _MAX_TAGS
        and all(
            0 < len(name) <= _MAX_TAG_NAME
            and not name.startswith(_RESERVED_TAG)
            and len(value) <= _MAX_TAG_VALUE
            and text.fullmatch(name)
            and text.fullmatch(value)
            for name, value in tags
        )
    )
    return tags if are_held else ()


def is_project_object(key: str) -> bool:
    """Whether it is an object of this project itself, which stays in the bucket's default class."""
    return key.startswith(PROJECT_FOLDER) or f"/{PROJECT_FOLDER}" in key


def with_class(
    attributes: ObjectAttributes | None, spec: StoreSpec, key: str
) -> ObjectAttributes | None:
    """The attributes of a write, with the class that the store's option names."""
    chosen = spec.option("storage-class")
    if chosen in ("", KEEP) or is_project_object(key):
        return attributes
    return replace(attributes or ObjectAttributes(), storage_class=chosen)


def with_tags(
    attributes: ObjectAttributes, lacks: tuple[str, ...], tags: Tags | None
) -> tuple[ObjectAttributes, tuple[str, ...]]:
    """What a read tells, with the tags that another request has found; None if none was sent."""
    if tags is None:
        return attributes, lacks
    others = tuple(name for name in lacks if name != "tags")
    return replace(attributes, tags=tags), ("tags", *others) if tags else others
