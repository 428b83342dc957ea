"""Values that object stores take and return.

Standard library only, so that they can be used where no SDK is installed. Values of the control
API have `to_dict` and `from_dict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, Literal, NamedTuple, Self

from skyplane_gateway.common.errors import ConfigurationInvalid, InvalidKey
from skyplane_gateway.common.schema import encode

#: A body to write: one buffer, never an iterator, since a retry sends the same bytes again.
Body = bytes | bytearray | memoryview

MIB = 1 << 20

#: The folder in a bucket for objects of this project itself, such as journals.
PROJECT_FOLDER: Final = ".skyplane/"
#: The folder for what is in the way of copies to files; see `stores.local.asides`.
ASIDE_FOLDER: Final = f"{PROJECT_FOLDER}aside/"


#: The folder for what is known of the copies in the folder above it; see `manifest.document`.
MANIFEST_FOLDER: Final = f"{PROJECT_FOLDER}manifest/"


#: User metadata by which Hadoop, Spark and AzCopy mark an empty object as a folder, in Azure.
FOLDER_MARK: Final = ("hdi_isfolder", "true")

#: Kind of store -> the scheme of its URLs, where it is another word.
_SCHEMES: Final = {"gcs": "gs", "azure": "az"}

#: Sorted pairs of names and values.
Tags = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ObjectAttributes:
    """The HTTP headers, user metadata, tags and class of an object.

    Attributes:
        metadata: sorted pairs of lower-case names (as S3 returns them) and values.
        tags: sorted pairs; empty where they were not asked for.
        storage_class: the class that a write asks for, as the store names it; None for the
            default of the bucket. Reads do not tell it; see `ObjectInfo`.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    content_language: str | None = None
    content_disposition: str | None = None
    cache_control: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    tags: Tags = ()
    storage_class: str | None = None

    @property
    def marks_folder(self) -> bool:
        """Whether an empty object with them stands for a folder."""
        name, text = FOLDER_MARK
        return any(row[0] == name and row[1].lower() == text for row in self.metadata)

    def to_dict(self) -> dict[str, Any]:
        document = {**encode(self), "metadata": dict(self.metadata)}
        # Journals and markers of uploads without tags and class stay as they are.
        document.pop("tags")
        if self.tags:
            document["tags"] = dict(self.tags)
        if self.storage_class is None:
            document.pop("storage_class")
        return document

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        headers = {name: data.get(name) for name in HEADERS}
        return cls(
            **headers,
            metadata=_pairs(data.get("metadata")),
            tags=_pairs(data.get("tags")),
            storage_class=data.get("storage_class"),
        )


def _pairs(found: Mapping[str, Any] | None) -> Tags:
    return tuple(sorted((str(name), str(text)) for name, text in (found or {}).items()))


#: Attribute -> the HTTP header that it is.
HEADERS: Final = {
    "content_type": "content-type",
    "content_encoding": "content-encoding",
    "content_language": "content-language",
    "content_disposition": "content-disposition",
    "cache_control": "cache-control",
}


@dataclass(frozen=True, slots=True)
class Precondition:
    """The condition of a write: none, "must not exist", or "must still be this version"."""

    if_absent: bool = False
    if_match: str | None = None

    def __post_init__(self) -> None:
        if self.if_absent and self.if_match is not None:
            raise ConfigurationInvalid("a precondition is either if_absent or if_match, not both")


#: Replaces any object. Only for objects without other writers.
UNCONDITIONAL = Precondition()
IF_ABSENT = Precondition(if_absent=True)


_TIME_PIN = "time-and-size:"


def time_pin(last_modified: float, size_bytes: int) -> str:
    """Takes the place of an ETag where a store gives none.

    In whole seconds, as HEAD answers are. A change within the same second that keeps the size
    goes unnoticed.
    """
    return f"{_TIME_PIN}{int(last_modified)}-{size_bytes}"


def is_time_pin(etag: str | None) -> bool:
    """Whether a version is known by its time and size only."""
    return etag is not None and etag.startswith(_TIME_PIN)


#: Whether an object is the copy that a manifest has a row of: the listing shows it unchanged; it
#: has another version; or it is a file with its time and size, and another or a changed inode.
CopyState = Literal["same", "changed", "touched"]


class RecordedCopy(NamedTuple):
    """What a manifest says of the copy at a key.

    Attributes:
        store, key: of the object that it was made of; see `StoreSpec.name`.
        version: of that object; see `source_version.identity_of`.
        state: of the object that is there now.
    """

    store: str
    key: str
    version: str
    crc32c: int | None
    state: CopyState


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object, as a listing, `head` or a finished write returns it.

    Attributes:
        key: the object's name in its bucket.
        size_bytes: length of the body.
        etag: the version, exactly as the store writes it (S3: with quotes; Google: the
            generation; file: `mtime_ns-size-inode`), or a `time_pin` where it gives none.
            Compare it only with ETags of the same store.
        last_modified: unix seconds.
        crc32c: checksum of the whole body; None where the store gives none that can be
            trusted. Listings of S3 never have it.
        attributes: None in listings of stores that do not list them.
        not_carried: metadata that a copy will not have, as far as this answer tells: `tags`,
            `storage-class`, `website-redirect`, `expires`, `hold`, `retention`, `user-metadata`
            that no answer holds, Azure's `blob-type`, and Google's `custom-time`, `contexts`.
        storage_class: as the store names it; None for the usual one, and in answers to writes.
        stored_unix_s: when the store got it, where `last_modified` may tell another time. Of a
            file, when its inode was changed last.
        made_unix_s: in listings, when a file was made that has an earlier time, where the system
            tells.
        recorded: in listings of a destination, what its manifest says of the copy.
        archived: why the object cannot be read now, and what to do; empty where it can be read,
            or where a listing does not tell. Only listings tell it.
        leftover: why temporary objects of its upload are still there; empty where none are. Only
            completions tell it. An abort of the upload removes them.
        md5: of the whole body, in hex; None where the answer states none. At Azure it may be what
            a writer claimed. Listings of S3 never have it: they do not show an encryption, which
            makes an ETag something else.
        is_folder: the listing's metadata says that this empty object stands for a folder of its
            name (see `FOLDER_MARK`).
        made_of: in listings, what the metadata tells of a copy's source (see `recorded_source`);
            None where the listing does not show metadata.
    """

    key: str
    size_bytes: int
    etag: str
    last_modified: float
    crc32c: int | None = None
    attributes: ObjectAttributes | None = None
    not_carried: tuple[str, ...] = ()
    storage_class: str | None = None
    stored_unix_s: float | None = None
    archived: str = ""
    leftover: str = ""
    md5: str | None = None
    made_of: str | None = None
    is_folder: bool = False
    made_unix_s: float | None = None
    recorded: RecordedCopy | None = None

    @property
    def written_unix_s(self) -> float:
        """When the object was written to its store."""
        return max(self.last_modified, self.stored_unix_s or self.last_modified)

    def to_dict(self) -> dict[str, Any]:
        """Without the fields that have their defaults: pages of listings have a million rows."""
        document: dict[str, Any] = {
            "key": self.key,
            "size_bytes": self.size_bytes,
            "etag": self.etag,
            "last_modified": self.last_modified,
        }
        for name, default in _INFO_DEFAULTS:
            value = getattr(self, name)
            if value != default:
                document[name] = value.to_dict() if name == "attributes" else value
        return document

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        found = dict(data)
        if (attributes := found.get("attributes")) is not None:
            found["attributes"] = ObjectAttributes.from_dict(attributes)
        if (row := found.get("recorded")) is not None:
            found["recorded"] = RecordedCopy(*row)
        if "not_carried" in found:
            found["not_carried"] = tuple(found["not_carried"])
        return cls(**found)


_INFO_DEFAULTS: Final = tuple(
    (one.name, one.default) for one in fields(ObjectInfo) if one.default is not MISSING
)


@dataclass(frozen=True, slots=True)
class PartInfo:
    """One stored part of an open upload; `number` counts from 1.

    `crc32c` is that of the stored part; None where the store does not report it.
    """

    number: int
    etag: str
    size_bytes: int
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """One open multipart upload. `initiated` is unix seconds."""

    key: str
    upload_id: str
    initiated: float


@dataclass(frozen=True, slots=True)
class StoreCapabilities:
    """What a store can do, so that no caller asks for its kind.

    Attributes:
        trusts_checksum: the CRC32C that `head` and finished writes return is that of the
            stored bytes. Where False, read the object to verify it.
        min_part_bytes: of all parts but the last.
        max_parts: parts in one upload.
        joined_parts: parts that a completion takes in one request, so that more of them cost more
            requests and time; 0 for any number.
        rewrite_s: the shortest average time between writes of one key.
        server_side_copy: what `CopiesParts.copy_part` copies from another bucket: any range, only
            whole objects, or nothing.
    """

    trusts_checksum: bool
    min_part_bytes: int
    max_part_bytes: int
    max_parts: int
    max_object_bytes: int
    joined_parts: int = 0
    rewrite_s: float = 0.0
    server_side_copy: Literal["none", "ranges", "objects"] = "none"

    def part_bytes(self, object_bytes: int, wanted_bytes: int, roomy_bytes: int = 0) -> int:
        """The allowed size of all parts but the last that is nearest to the wanted one.

        Rounded up to whole MiB where the wanted size is too small. Raises InvalidKey for an object
        that this store cannot hold.

        Args:
            roomy_bytes: parts may be as large as this where so few of them are joined at once.
        """
        if object_bytes > self.max_object_bytes:
            raise InvalidKey(
                f"an object of {object_bytes} bytes is larger than the {self.max_object_bytes} "
                "bytes that the destination can hold; split it at the source"
            )
        if self.joined_parts:
            share_bytes = -(-object_bytes // self.joined_parts)
            wanted_bytes = max(wanted_bytes, min(-(-share_bytes // MIB) * MIB, roomy_bytes))
        needed = -(-object_bytes // self.max_parts)
        if needed > wanted_bytes:
            wanted_bytes = -(-needed // MIB) * MIB
        return min(max(wanted_bytes, self.min_part_bytes), self.max_part_bytes)


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """Which store. Contains no secret, so it may appear in plans, fleets and logs.

    Attributes:
        kind: `s3`, `gcs`, `azure` or `file`.
        bucket: the bucket's name; for `azure` `account/container`; for `file` the absolute root
            directory (`/` for all).
        endpoint_url: where an S3-compatible store or an emulator answers; None for the cloud's own.
        region: the store's own region name, where it is known.
        options: settings of that kind, sorted pairs of strings.
    """

    kind: str
    bucket: str
    endpoint_url: str | None = None
    region: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def place(self) -> str:
        """For messages: kind and bucket, and the endpoint where there is one."""
        at = f" at {self.endpoint_url}" if self.endpoint_url else ""
        return f"{self.kind}://{self.bucket}{at}"

    @property
    def name(self) -> str:
        """For manifests: the URL of the bucket, which may stand at several endpoints."""
        at = f" at {self.endpoint_url}" if self.endpoint_url else ""
        return f"{self.url('')}{at}"

    def url(self, key: str) -> str:
        """Of an object or a prefix, for messages."""
        if self.kind == "file":
            return f"{self.bucket.rstrip('/')}/{key}"
        return f"{_SCHEMES.get(self.kind, self.kind)}://{self.bucket}/{key}"

    def doing(self, verb: str, key: str) -> str:
        """The beginning of an error message: which request, of which object, at which endpoint."""
        at = f" at {self.endpoint_url}" if self.endpoint_url else ""
        return f"{verb} {self.url(key)}{at}"

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)

    def to_dict(self) -> dict[str, Any]:
        return {**encode(self), "options": dict(self.options)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ConfigurationInvalid when kind or bucket is missing."""
        kind, bucket = data.get("kind"), data.get("bucket")
        if not isinstance(kind, str) or not isinstance(bucket, str) or not bucket:
            raise ConfigurationInvalid("a store needs a kind and a bucket, both non-empty strings")
        return cls(
            kind=kind,
            bucket=bucket,
            endpoint_url=data.get("endpoint_url"),
            region=data.get("region"),
            options=_pairs(data.get("options")),
        )


class Credentials(Mapping[str, str]):
    """A mapping of secret strings; repr and str never show a value.

    For S3 the names are `access_key_id`, `secret_access_key` and, for temporary ones,
    `session_token` and `expires_at` (unix seconds as decimal text). For Google Cloud Storage they
    are `access_token` and `expires_at`; for Azure `account_key`, `sas_token` or `bearer_token`, the
    last two with `expires_at`.
    `to_dict` is for the authenticated control API only.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {str(name): str(value) for name, value in values.items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Credentials({', '.join(sorted(self._values))}: hidden)"

    def to_dict(self) -> dict[str, str]:
        return dict(self._values)

    @classmethod
    def from_dict(cls, data: Mapping[str, str]) -> Self:
        return cls(data)
