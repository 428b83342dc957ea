"""The manifest of a place, for people and programs: its runs, rows, differences and checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.common.schema import encode
from skyplane_gateway.common.source_version import etag_of
from skyplane_gateway.manifest.document import (
    INDEX_SUFFIX,
    ROWS_SUFFIX,
    Elsewhere,
    Pointer,
    Segment,
    Snapshot,
    manifest_prefix,
    read_pointer,
)
from skyplane_gateway.manifest.reader import ManifestReader
from skyplane_gateway.selection.selection_rule import is_reserved
from skyplane_gateway.selection.source_digest import SourceDigest
from skyplane_gateway.stores import ObjectStore, with_crc32c
from skyplane_orchestration.errors import ConfigurationInvalid, ManifestUnreadable, NotFound
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.argument_checks import checks_methods
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.compare import MAX_LISTED_DIFFERENCES
from skyplane_orchestration.storage.manifest.elsewhere import manifest_store
from skyplane_orchestration.storage.manifest.rows import (
    SCHEMA,
    dicts_of,
    newest,
    read_file,
    read_segment,
    without_deleted,
)
from skyplane_orchestration.storage.manifest.signature import ManifestKey, SignatureState
from skyplane_orchestration.storage.object_manifest import write_rows
from skyplane_orchestration.storage.open import journal_folder, open_location


@dataclass(frozen=True, slots=True)
class ManifestDiff:
    """Keys that came, changed (another copy, or one of another version) and went, in order."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """The manifest of a place beside a listing of it.

    Args:
        rows: without deleted keys. None is compared where some of them are damaged.
        same: rows whose object is the recorded copy.
        missing: keys of rows without an object.
        changed: keys of rows whose object is another version.
        unknown: keys of objects without a row.
        faults: files of the manifest that are gone or damaged, and wrong signatures.
        signatures: number of the commit -> its state.
    """

    url: str
    rows: int
    same: int
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    unknown: tuple[str, ...]
    faults: tuple[str, ...]
    signatures: Mapping[int, SignatureState]

    @property
    def is_equal(self) -> bool:
        """Whether all that the manifest says holds. Objects without a row are no fault."""
        return not (self.faults or self.missing or self.changed)

    @property
    def findings(self) -> list[str]:
        """What does not hold, one line each."""
        missing = (f"missing: {key}" for key in self.missing)
        return [*self.faults, *missing, *(f"changed: {key}" for key in self.changed)]

    @property
    def summary(self) -> str:
        """The counts in one line."""
        return (
            f"{self.same} of {counted(self.rows, 'row')} have their object;"
            f" {len(self.missing)} missing, {len(self.changed)} changed,"
            f" {counted(len(self.unknown), 'object')} without a row"
        )

    def as_diff(self) -> ManifestDiff:
        """What came, changed and went at the place since. Raises ManifestUnreadable."""
        if self.faults:
            raise ManifestUnreadable(self.faults[0])
        return ManifestDiff(self.unknown, self.changed, self.missing)

    def failure(self, shown: int) -> str:
        """What does not hold, in one line."""
        first, more = "; ".join(self.findings[:shown]), len(self.findings) - shown
        left = f"; and {more} more" if more > 0 else ""
        return f"the manifest of {self.url} does not hold: {first}{left}"

    def to_dict(self) -> dict[str, Any]:
        """With the first keys of each kind, and their counts."""
        found = encode(self, version=1)
        lists = {name: keys for name, keys in found.items() if isinstance(keys, list)}
        counts = {f"{name}_count": len(keys) for name, keys in lists.items()}
        first = {name: keys[:MAX_LISTED_DIFFERENCES] for name, keys in lists.items()}
        return {**found, "is_equal": self.is_equal, **counts, **first}


@checks_methods
class PlaceManifest:
    """The manifest of a folder, as its pointer said when it was opened: see `Client.manifest`.

    A run is named by the number of its commit, or by its text; None is the newest one.

    Raises:
        NotFound: there is none.
        ManifestUnreadable: it is damaged, of a newer release, or about another place.
    """

    def __init__(
        self, location: Location, credentials: CredentialSources, manifest_at: str = "auto"
    ) -> None:
        #: Of runs that keep it, as far as counts.
        self._job = TransferJob(location, location, manifest_at=manifest_at)
        self._location = location
        self._credentials = credentials
        self._folder = journal_folder(self._job)
        with self._opened() as (_, store, at):
            self._pointer = self._read(store, at)

    @contextmanager
    def _opened(self) -> Iterator[tuple[ObjectStore, ObjectStore, Elsewhere | None]]:
        """The store of the copies, that of the manifest, and where it lies if elsewhere."""
        with (
            open_location(self._location, self._credentials) as copies,
            manifest_store(self._job, copies, self._credentials) as (store, at),
        ):
            self._prefix = manifest_prefix(self._folder) if at is None else at.prefix
            yield copies, store, at

    def _read(self, store: ObjectStore, at: Elsewhere | None) -> Pointer:
        found = read_pointer(store, self._folder, at)
        if found is None:
            raise NotFound(f"{self._location.url} has no manifest; a sync makes one")
        return found[0]

    @property
    def runs(self) -> tuple[Snapshot, ...]:
        """The runs that it still knows, the newest last; one run may have several commits."""
        return self._pointer.snapshots

    def run(self, name: int | str | None = None) -> Snapshot:
        """The run of a name. Raises ConfigurationInvalid for one that it does not know."""
        named = [one for one in self.runs if name in (None, one.commit, str(one.commit), one.run)]
        if not named:
            known = ", ".join(str(one.commit) for one in self.runs)
            raise ConfigurationInvalid(
                f"the manifest of {self._location.url} has no run {name!r}; it has {known}"
            )
        return named[-1]

    def table(self, run: int | str | None = None, prefix: str = "") -> pa.Table:
        """The objects as a run left them, in the order of keys; see docs/how-to/manifest.md.

        Args:
            prefix: of the keys, below the folder.

        Raises ConfigurationInvalid; or ManifestUnreadable if a segment is gone or damaged.
        """
        segments = self._pointer.segments_of(self.run(run))
        with self._opened() as (_, store, _):
            tables = [read_segment(store, self._prefix, one) for one in segments]
        found = without_deleted(newest([SCHEMA.empty_table(), *tables]))
        return found.filter(pc.starts_with(found["key"], prefix)) if prefix else found

    def dataset(self, run: int | str | None = None) -> ds.Dataset:
        """`table` as a dataset, which is in memory: segments also have rows that do not count."""
        return ds.dataset(self.table(run))

    def export(self, target: str, run: int | str | None = None, prefix: str = "") -> str:
        """Write `table` to a path or URL, in the format of its suffix, and return its URL.

        Raises ConfigurationInvalid for another suffix; else as `table`, or StoreError.
        """
        rows = dicts_of(self.table(run, prefix))
        return write_rows(target, self._location, SCHEMA, rows, self._credentials)

    def diff(self, run_a: int | str, run_b: int | str) -> ManifestDiff:
        """What came, changed and went between two runs. Raises as `table`."""
        before, after = self._identities(run_a), self._identities(run_b)
        both = before.keys() & after.keys()
        return ManifestDiff(
            added=tuple(key for key in after if key not in both),
            changed=tuple(key for key in after if key in both and before[key] != after[key]),
            removed=tuple(key for key in before if key not in both),
        )

    def _identities(self, run: int | str) -> dict[str, tuple[str, ...]]:
        table, names = self.table(run), ("copy", "source_store", "source_key", "source_version")
        columns = (table[name].to_pylist() for name in names)
        return dict(zip(table["key"].to_pylist(), zip(*columns, strict=True), strict=True))

    def verify(self, public_key: str | None = None) -> ManifestReport:
        """Compare the rows of now with one listing of the place, and check all segments.

        Args:
            public_key: a PEM file, or `env:NAME`, that checks the signatures of the runs.

        Raises ConfigurationInvalid for the key, and StoreError.
        """
        key = None if public_key is None else ManifestKey.for_checks(public_key)
        found: dict[str, list[str]] = {}
        with self._opened() as (copies, store, at):
            pointer = self._pointer = self._read(store, at)
            harm = {one: tuple(self._damage(store, one)) for one in pointer.segments}
            is_whole = not any(harm[one] for one in pointer.newest)
            reader = ManifestReader(store, self._folder, at)
            for state, name in self._beside(copies, reader) if is_whole else ():
                found.setdefault(state, []).append(name)
        signatures: dict[int, SignatureState] = {
            one.commit: "unchecked" if key is None else key.state_of(pointer, one)
            for one in pointer.snapshots
        }
        last = max(signatures, default=0)
        wrong = [
            f"{state}: the signature of run {commit}"
            for commit, state in signatures.items()
            if state == "wrong" or (commit == last and state == "unsigned")
        ]
        keys = {state: tuple(found.get(state, ())) for state in ("missing", "changed", "unknown")}
        same = len(found.get("same", ()))
        return ManifestReport(
            url=self._location.url,
            rows=same + len(keys["missing"]) + len(keys["changed"]),
            same=same,
            **keys,
            faults=(*chain.from_iterable(harm.values()), *wrong),
            signatures=signatures,
        )

    def _damage(self, store: ObjectStore, one: Segment) -> Iterator[str]:
        for name, size, digest in (
            (one.name + ROWS_SUFFIX, one.parquet_bytes, one.parquet_sha256),
            (one.name + INDEX_SUFFIX, one.index_bytes, one.index_sha256),
        ):
            try:
                read_file(store, self._prefix + name, size, digest)
            except ManifestUnreadable as error:
                yield error.message

    def _beside(self, store: ObjectStore, reader: ManifestReader) -> Iterator[tuple[str, str]]:
        """State and key of each row, and of each object without one."""
        left = {row.key for row in reader.rows() if row.copy}
        objects = (one for one in store.list(self._folder) if not is_reserved(one.key))
        for info in reader.beside(objects, self._folder):
            key, row = info.key[len(self._folder) :], info.recorded
            left.discard(key)
            state = "unknown" if row is None else row.state
            if row is not None and state == "touched":  # Or edited in place, with its old time.
                seen = None if row.crc32c is None else with_crc32c(store, info.key)
                is_same = seen is not None and seen.crc32c == row.crc32c
                state = "same" if is_same else "changed"
            yield state, key
        yield from (("missing", key) for key in sorted(left))

    @cached_property
    def source_digest(self) -> str:
        """What its copies were made of: `TransferResult.source_digest` of a run that would copy
        the same objects. Raises StoreError."""
        digest = SourceDigest()
        with self._opened() as (_, store, at):
            for row in ManifestReader(store, self._folder, at).rows():
                if row.copy:
                    is_file = row.store.startswith("/")
                    version = etag_of(row.version) if is_file else row.version
                    digest.add(ObjectInfo(row.source_key, row.size_bytes, version, 0.0))
        return digest.text
