"""The options of the stores: their names and values, for their checks, the code and the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.kept_properties import CLASSES, KEEP, NON_ASCII, NON_ASCII_RULES
from skyplane_gateway.common.objects import StoreSpec

#: How an S3 store uses CRC32C; see `checksum_use`.
ChecksumUse = Literal["trusted", "sent", "none"]

#: Options of every store that is reached over HTTP, with a number from 1.
_NUMBERS: Final = ("connections", "attempts")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options of one kind of store.

    Attributes:
        what: the kind, as in "an S3 store".
        choices: options with their values, the default first; it may be empty.
        texts: options with a text of their own.
    """

    what: str
    choices: Mapping[str, Sequence[str]]
    texts: tuple[str, ...] = ()


#: Canned ACLs of the S3 documentation.
_ACLS: Final = (
    "private",
    "bucket-owner-full-control",
    "bucket-owner-read",
    "authenticated-read",
    "aws-exec-read",
    "public-read",
    "public-read-write",
)
_YES_OR_NO: Final = ("false", "true")
_MD5: Final = ("use", "ignore")

#: By the kind of store.
OPTIONS: Final = {
    "azure": StoreOptions(
        "an Azure store",
        {
            "checksum": ("", "sent", "trusted"),
            "anonymous": _YES_OR_NO,
            "content-md5": _MD5,
            NON_ASCII: NON_ASCII_RULES,
            "storage-class": ("", *CLASSES["azure"], KEEP),
            "tags": ("", KEEP),
        },
    ),
    "gcs": StoreOptions(
        "a Google Cloud Storage bucket",
        {"anonymous": _YES_OR_NO, "storage-class": ("", *CLASSES["gcs"], KEEP)},
        ("user_project",),
    ),
    "s3": StoreOptions(
        "an S3 store",
        {
            "checksum": ("", "trusted", "sent", "none"),
            "content-md5": _MD5,
            "preconditions": ("sent", "checked"),
            "addressing": ("", "path", "virtual"),
            "payload": ("unsigned", "signed"),
            "anonymous": _YES_OR_NO,
            "acl": ("", *_ACLS),
            "requester-pays": _YES_OR_NO,
            "sse": ("", "AES256", "aws:kms", "aws:kms:dsse"),
            NON_ASCII: NON_ASCII_RULES,
            "storage-class": ("", *CLASSES["s3"], KEEP),
            "tags": ("", KEEP),
        },
        ("bucket-owner", "expires", "sse-kms-key-id"),
    ),
}


def check_options(spec: StoreSpec) -> None:
    """Raise ConfigurationInvalid for an unknown option, a wrong value, or a wrong endpoint."""
    known = OPTIONS[spec.kind]
    for name, value in spec.options:
        if name in _NUMBERS:
            if not value.isdecimal() or int(value) < 1:
                raise ConfigurationInvalid(f"option {name}={value!r}: give a number from 1")
        elif name in known.choices:
            if value not in known.choices[name]:
                values = ", ".join(filter(None, known.choices[name]))
                raise ConfigurationInvalid(f"option {name}={value!r}: choose one of {values}")
        elif name not in known.texts:
            names = ", ".join([*known.choices, *_NUMBERS, *known.texts])
            raise ConfigurationInvalid(f"{known.what} has no option {name!r}; it has {names}")
    if spec.option("sse-kms-key-id") and not spec.option("sse").startswith("aws:kms"):
        raise ConfigurationInvalid("option sse-kms-key-id needs sse=aws:kms or sse=aws:kms:dsse")
    if spec.endpoint_url is not None and not spec.endpoint_url.startswith(("http://", "https://")):
        raise ConfigurationInvalid(
            f"the endpoint {spec.endpoint_url!r} must begin with http:// or https://"
        )


def checksum_use(spec: StoreSpec) -> ChecksumUse:
    """The option `checksum` of an S3 store: bodies are sent with a CRC32C (`sent`), and the one
    that the store reports of an object counts as well (`trusted`: AWS itself), or
    neither: then bodies are sent with an MD5."""
    chosen = spec.option("checksum") or ("sent" if spec.endpoint_url else "trusted")
    return cast("ChecksumUse", chosen)


def uses_md5(spec: StoreSpec) -> bool:
    """Whether the MD5 counts that the store states, perhaps a wrong one for ever."""
    return spec.option("content-md5") != "ignore"


def gives_checksums(spec: StoreSpec) -> bool:
    """Whether a store of a service reports checksums of objects that can be trusted."""
    return spec.kind != "s3" or checksum_use(spec) == "trusted"
