"""The pointer of a manifest: the one object that is replaced, which names all others.

A manifest lies in `.skyplane/manifest/` below the folder of the copies. Its rows are in immutable
segments, sorted by key: a later segment counts before an earlier one. Each segment is a Parquet
file for people and programs. Beside it are the same rows as an index, which gateways read without
pyarrow. A commit writes its segment first, then replaces `pointer.json` under a precondition.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.common.errors import (
    ConfigurationInvalid,
    ManifestUnreadable,
    NotFound,
    ObjectTooLarge,
    PermissionDenied,
    PreconditionFailed,
)
from skyplane_gateway.common.objects import MANIFEST_FOLDER
from skyplane_gateway.common.schema import Document, as_mapping
from skyplane_gateway.stores.base import ObjectStore, read_object

SCHEMA_VERSION: Final = 1
POINTER: Final = "pointer.json"
#: Of the two files of a segment. The first is Parquet: with `.parquet` at its end, DuckDB, Polars
#: and BigQuery would take it for a file of the table that lies in the folder above.
ROWS_SUFFIX: Final = ".segment"
INDEX_SUFFIX: Final = ".index"

_MAX_POINTER_BYTES: Final = 16 << 20
#: Reads of a pointer that is replaced meanwhile.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Segment:
    """One pair of files: `<name>.segment` and `<name>.index`.

    Attributes:
        rows: deleted keys included.
        parquet_sha256, index_sha256: of the whole files.
        stores: of the sources, by the numbers that the index uses; see `StoreSpec.name`.
        blocks: of the index: first key and offset of each, ascending.
    """

    name: str
    rows: int
    parquet_bytes: int
    index_bytes: int
    parquet_sha256: str
    index_sha256: str
    stores: tuple[str, ...]
    blocks: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The manifest as one run left it.

    Attributes:
        id: a random name of this commit.
        commit: its number, which rises by one.
        run: several commits of one run have the same.
        source, destination: URLs of the job.
        committed_unix_s: by the clock of the machine that ran it.
        segments: names, the oldest first.
        signature: over the snapshot and the digests of its segments; see `manifest verify`.
    """

    id: str
    commit: int
    run: str
    source: str
    destination: str
    committed_unix_s: float
    copied: int
    deleted: int
    segments: tuple[str, ...]
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Pointer(Document, what="the pointer of a manifest", version=SCHEMA_VERSION):
    """What `pointer.json` says.

    Attributes:
        place: the folder that it is about; a manifest that was copied along names another one.
        segments: all that a snapshot names.
        snapshots: of the last runs, the newest last.
    """

    place: str
    segments: tuple[Segment, ...]
    snapshots: tuple[Snapshot, ...]

    def segments_of(self, snapshot: Snapshot) -> tuple[Segment, ...]:
        """The segments of a snapshot, the oldest first."""
        by_name = {one.name: one for one in self.segments}
        return tuple(by_name[name] for name in snapshot.segments)

    @property
    def next_commit(self) -> int:
        """The number of the next commit."""
        return self.snapshots[-1].commit + 1 if self.snapshots else 1

    @property
    def newest(self) -> tuple[Segment, ...]:
        """The segments that say what is at the place now."""
        return self.segments_of(self.snapshots[-1]) if self.snapshots else ()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A manifest that lies apart from its copies.

    Attributes:
        prefix: of the keys of its files.
        place: name of the folder of the copies; see `place_of`.
        kind: of the copies' store.
    """

    prefix: str
    place: str
    kind: str


def manifest_prefix(folder: str) -> str:
    """The prefix of the keys of a manifest; `folder` is empty or ends in a slash."""
    return folder + MANIFEST_FOLDER


def place_of(store: ObjectStore, folder: str) -> str:
    """The name of a folder: a bucket has the same at each of its endpoints, a folder of files by
    whatever links it is reached."""
    place = store.spec.url(folder)
    return f"{os.path.realpath(place)}/" if store.spec.kind == "file" else place


def encode_pointer(pointer: Pointer) -> bytes:
    return json.dumps(pointer.to_dict(), indent=1).encode()


def read_pointer(
    store: ObjectStore, folder: str, at: Elsewhere | None = None
) -> tuple[Pointer, str] | None:
    """The pointer of the manifest of a folder with its ETag; None where there is none. 2 calls.

    Raises:
        ManifestUnreadable: it is damaged, of a newer release, or about another place.
        StoreError: as the store says.
    """
    place = place_of(store, folder) if at is None else at.place
    key = (manifest_prefix(folder) if at is None else at.prefix) + POINTER
    for _ in range(_ATTEMPTS):
        try:
            info, body = read_object(store, key, max_bytes=_MAX_POINTER_BYTES)
        except NotFound:
            return None
        except PermissionDenied:
            # S3 says so of a missing key if a policy allows to list certain prefixes only.
            if any(one.key == key for one in store.list(key)):
                raise
            return None
        except PreconditionFailed:
            continue
        except ObjectTooLarge as error:
            raise ManifestUnreadable(f"the manifest cannot be read: {error.message}") from error
        pointer = _decoded(body, store.spec.url(key), info.etag)
        if pointer.place != place:
            # Another place may keep its manifest there; one that was copied along keeps nobody's.
            raise ManifestUnreadable(
                f"{store.spec.url(key)} is the manifest of {pointer.place!r}, not of this place",
                etag="" if at is not None else info.etag,
            )
        return pointer, info.etag
    raise PreconditionFailed(f"{key!r} changes all the time", is_permanent=False)


def _decoded(body: bytes, where: str, etag: str) -> Pointer:
    try:
        document = as_mapping(json.loads(body), "the pointer of a manifest")
        version = document.get("schema_version")
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise ManifestUnreadable(f"{where} is of a newer release; use that one")
        pointer = Pointer.from_dict(document)
        for snapshot in pointer.snapshots:
            pointer.segments_of(snapshot)
    except (ValueError, KeyError, RecursionError, ConfigurationInvalid) as error:
        raise ManifestUnreadable(f"{where} is damaged: {error}", etag=etag) from error
    return pointer
