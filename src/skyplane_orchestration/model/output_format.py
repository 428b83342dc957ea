"""The format of a file that is written: its name ends in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from skyplane_gateway.common.wording import with_fields
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import holds_template

#: Suffixes of manifests; the first is the format of a name without a suffix.
MANIFESTS: Final = (".parquet", ".jsonl", ".ndjson", ".csv")

#: A run id of Airflow may end in `.123456+00:00`, which names no format.
_SUFFIX: Final = re.compile(r".*(\.[A-Za-z][^./]*)", re.DOTALL)


def suffix_of(name: str, known: Sequence[str]) -> str:
    """The suffix of a path or URL in lower case; without one the first that is known.

    Raises ConfigurationInvalid for an unknown suffix, and for a folder.
    """
    place = name.partition("://")[2] if "://" in name else f"/{name}"
    if place.endswith("/") or "/" not in place:
        raise ConfigurationInvalid(f"{name!r} names no file; add a name that ends in {known[0]}")
    found = _SUFFIX.fullmatch(name)
    suffix = found[1].lower() if found else known[0]
    if suffix not in known:
        raise ConfigurationInvalid(
            f"{name!r} cannot be written as {ascii(suffix)[1:-1]}; use a name that ends in "
            + ", ".join(known)
        )
    return suffix


def require_manifest(name: str | None) -> None:
    """Raise ConfigurationInvalid for a manifest in a format that is not written.

    A template is checked once it is rendered.
    """
    if name is not None and not holds_template(name):
        try:
            suffix_of(name, MANIFESTS)
        except ConfigurationInvalid as error:
            error.put_before(with_fields("{manifest}"))
            raise
