"""Samples of a deployment's rates, and what it sends: small files in a directory or a bucket.

Each write makes one file under a name of its own, and nobody changes or removes one. So writers at
the same time lose nothing, and readers need no lock.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from skyplane_gateway.common.objects import IF_ABSENT
from skyplane_gateway.common.schema import Document, parsed
from skyplane_gateway.stores.base import ObjectStore, read_object
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    InvalidLocation,
    NotFound,
    ObjectTooLarge,
    PreconditionFailed,
)
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.open import PARALLEL_READS, open_location
from skyplane_orchestration.storage.parallel import map_parallel
from skyplane_orchestration.units import bytes_to_gb

log = logging.getLogger(__name__)

#: Older samples are not read: six half-lives, after which a sample counts 1/64.
OLDEST_DAYS: Final = 180
#: Most files that are read, the newest; each is one request to the store, and one listing a month.
MOST_FILES: Final = 500
_MOST_BYTES: Final = 1 << 20
_FOLDER: Final = "samples/"
#: Empty files, whose names have all that is summed, so that a listing is enough.
_SENT: Final = "sent/%Y-%m/"
_SENT_NAME: Final = re.compile(r"([a-z]+)\.[^.]+\.[a-z]+\.[^.]+\.[0-9a-f]{32}\.([0-9]+)")


@dataclass(frozen=True, slots=True)
class _SampleFile(Document, what="a file of rate samples", version=1):
    samples: tuple[EdgeMeasurement, ...]


def require_learned_grid(target: str | Path) -> str:
    """The place of a learned grid as text.

    Raises ConfigurationInvalid for one that is neither a directory nor a URL of a store.
    """
    try:
        kind = learned_place(str(target)).kind
    except InvalidLocation as error:
        raise ConfigurationInvalid.about("{learned_grid}: {why}", why=error.message) from error
    if kind == "file" and Path(Location(str(target)).url.removeprefix("file://")).is_file():
        raise ConfigurationInvalid.about(
            "{learned_grid} {given!r} is a file; give a directory or a URL", given=str(target)
        )
    return str(target)


def learned_place(target: str) -> Location:
    """The folder of a learned grid. Raises InvalidLocation if it is neither path nor URL."""
    return Location(target if target.endswith("/") else f"{target}/")


def write_samples(
    target: str, samples: Sequence[EdgeMeasurement], credentials: CredentialSources
) -> bool:
    """Write samples of one transfer as one file; False if just these are there already.

    Its name has the date and a digest of the samples. Raises StoreError or InvalidLocation.
    """
    place = learned_place(target)
    body = json.dumps(_SampleFile(tuple(samples)).to_dict()).encode()
    moment = datetime.fromtimestamp(max(one.at_unix_s for one in samples), UTC)
    digest = hashlib.sha256(body).hexdigest()[:32]
    key = f"{place.key}{_FOLDER}{moment:%Y-%m}/{moment:%dT%H%M%SZ}-{digest}.json"
    with open_location(place, credentials) as store:
        try:
            store.put(key, body, precondition=IF_ABSENT)
        except PreconditionFailed:
            return False
    return True


def read_samples(
    target: str, credentials: CredentialSources, *, now_unix_s: float
) -> list[EdgeMeasurement]:
    """The samples of the last `OLDEST_DAYS`, from the newest `MOST_FILES` files.

    None where nothing was written yet. A file that cannot be understood is left out, with a
    warning in the log.

    Raises StoreError or InvalidLocation.
    """
    place = learned_place(target)
    oldest = datetime.fromtimestamp(now_unix_s, UTC) - timedelta(days=OLDEST_DAYS)
    with open_location(place, credentials) as store:
        keys = islice(_newest_first(store, f"{place.key}{_FOLDER}", now_unix_s, oldest), MOST_FILES)
        files = map_parallel(keys, lambda key: _read(store, key), PARALLEL_READS)
        return [
            sample
            for _, samples in files
            for sample in samples
            if sample.at_unix_s >= oldest.timestamp()
        ]


def _newest_first(
    store: ObjectStore, folder: str, now_unix_s: float, oldest: datetime
) -> Iterator[str]:
    # A day ahead, for writers whose clocks are.
    month = datetime.fromtimestamp(now_unix_s, UTC) + timedelta(days=1)
    while month.strftime("%Y-%m") >= oldest.strftime("%Y-%m"):
        keys = [one.key for one in store.list(f"{folder}{month:%Y-%m}/")]
        yield from sorted((key for key in keys if key.endswith(".json")), reverse=True)
        month = month.replace(day=1) - timedelta(days=1)


def _read(store: ObjectStore, key: str) -> Iterable[EdgeMeasurement]:
    try:
        _, body = read_object(store, key, max_bytes=_MOST_BYTES)
        return _SampleFile.from_dict(parsed(body, f"{key}, which")).samples
    except (ConfigurationInvalid, NotFound, ObjectTooLarge) as error:
        log.warning("rate samples in %s are left out: %s", key, error)
        return ()


def write_sent(
    target: str,
    epoch: str,
    sent_bytes: Mapping[tuple[str, str], int],
    credentials: CredentialSources,
    now_unix_s: float,
) -> None:
    """Write what one epoch of a transfer has sent to the internet, by edge: a file for each.

    Args:
        epoch: names it among those of all transfers; of several writes, the most bytes count.

    Raises StoreError or InvalidLocation.
    """
    place, digest = learned_place(target), hashlib.sha256(epoch.encode()).hexdigest()[:32]
    folder = f"{place.key}{datetime.fromtimestamp(now_unix_s, UTC):{_SENT}}"
    with open_location(place, credentials) as store:
        for edge, size_bytes in sent_bytes.items():
            name = ".".join((*edge, digest, str(size_bytes))).replace(":", ".")
            store.put(f"{folder}{name}", b"")


def read_sent_gb(
    target: str, credentials: CredentialSources, now_unix_s: float
) -> dict[str, float]:
    """Cloud -> GB (1e9 bytes) that was sent to the internet in the current month, in UTC.

    A file whose name cannot be understood is left out, with a warning in the log.

    Raises StoreError or InvalidLocation.
    """
    place = learned_place(target)
    folder = f"{place.key}{datetime.fromtimestamp(now_unix_s, UTC):{_SENT}}"
    most_bytes: dict[str, tuple[str, int]] = {}
    with open_location(place, credentials) as store:
        for one in store.list(folder):
            name = one.key.removeprefix(folder)
            if (found := _SENT_NAME.fullmatch(name)) is None:
                log.warning("%s does not say what was sent, and is left out", one.key)
                continue
            which, size = name.rpartition(".")[0], int(found[2])
            most_bytes[which] = max(most_bytes.get(which, ("", 0)), (found[1], size))
    sent = Counter[str]()
    for cloud, size_bytes in most_bytes.values():
        sent[cloud] += size_bytes
    return {cloud: bytes_to_gb(size_bytes) for cloud, size_bytes in sent.items()}
