"""The options of a store: their names and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, cast

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.objects import StoreSpec

#: How an S3 store uses CRC32C; see `checksum_use`.
ChecksumUse = Literal["trusted", "sent", "none"]

#: Options of every store that is reached over HTTP, with a number from 1.
_NUMBERS: Final = ("connections", "attempts")


def check_options(
    spec: StoreSpec,
    what: str,
    choices: Mapping[str, Sequence[str]],
    texts: Sequence[str] = (),
) -> None:
    """Raise ConfigurationInvalid for an unknown option, a wrong value, or a wrong endpoint.

    Args:
        what: the kind of store, as in "an S3 store".
        choices: options with their values, the default first; it may be empty.
        texts: options with a text of their own.
    """
    for name, value in spec.options:
        if name in _NUMBERS:
            if not value.isdecimal() or int(value) < 1:
                raise ConfigurationInvalid(f"option {name}={value!r}: give a number from 1")
        elif name in choices:
            if value not in choices[name]:
                known = ", ".join(filter(None, choices[name]))
                raise ConfigurationInvalid(f"option {name}={value!r}: choose one of {known}")
        elif name not in texts:
            known = ", ".join([*choices, *_NUMBERS, *texts])
            raise ConfigurationInvalid(f"{what} has no option {name!r}; it has {known}")
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
