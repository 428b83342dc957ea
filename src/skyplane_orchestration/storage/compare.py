"""Compares two places object by object: names, sizes and checksums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeVar

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.common.schema import encode
from skyplane_gateway.selection.pattern_use import PatternUse
from skyplane_gateway.stores import check_destination_key, escape_name, head_all
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import ChecksumMismatch, NotFound, PreconditionFailed, StoreError
from skyplane_orchestration.formatting import size
from skyplane_orchestration.model.job import TransferJob, require_at_least
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.empty_source import CountingLister, require_file, require_some
from skyplane_orchestration.storage.open import open_ends, rule_of
from skyplane_orchestration.storage.pairs import Pair, pairs
from skyplane_orchestration.storage.parallel import map_parallel
from skyplane_orchestration.storage.pattern_notes import unmatched_warnings

SCHEMA_VERSION: Final = 1

#: Differences that a report lists; the counts are of all.
MAX_LISTED_DIFFERENCES: Final = 50

#: Objects compared in parallel; as many again are queued.
PARALLEL_READS: Final = 8

T = TypeVar("T")

DifferenceKind = Literal["missing", "extra", "different", "unreadable"]


@dataclass(frozen=True, slots=True)
class Difference:
    """An object that is not the same at both places.

    Args:
        kind: `missing` at the destination, or at the source that a list of keys names; `extra`
            at the destination, `different`, or `unreadable` (it could not be compared).
        source, destination: URLs; empty where there is no object.
    """

    kind: DifferenceKind
    source: str
    destination: str
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of a comparison.

    Args:
        objects: objects of the source that were compared.
        equal, missing, different, unreadable: counts that add up to `objects`.
        extra: objects that only the destination has; None when they were not looked for.
        size_bytes: size of the equal objects.
        read_bytes: bytes read from both stores where they had no trusted checksum.
        compared: checksum -> objects compared by it; `MD5` as both stores state it, `SHA-256` of
            what was read at both ends.
        has_checksums: False when only names and sizes were compared.
        differences: the first `MAX_LISTED_DIFFERENCES`, in the order of keys.
        warnings: about patterns that match no key at either end.
    """

    source: str
    destination: str
    objects: int
    equal: int
    missing: int
    different: int
    unreadable: int
    extra: int | None
    size_bytes: int
    read_bytes: int
    has_checksums: bool
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...] = ()
    compared: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_equal(self) -> bool:
        return self.equal == self.objects and not self.extra

    @property
    def summary(self) -> str:
        """The counts in one line."""
        extra = "" if self.extra is None else f", {self.extra} extra"
        compared = "checksums" if self.has_checksums else "names and sizes only"
        ways = "".join(f", {count} by {name}" for name, count in sorted(self.compared.items()))
        return (
            f"{self.equal} of {self.objects} objects are equal ({size(self.size_bytes)}, by"
            f" {compared}); {self.missing} missing, {self.different} different,"
            f" {self.unreadable} unreadable{extra}; {size(self.read_bytes)} read{ways}"
        )

    def failure(self, shown: int) -> str:
        """What is not equal, with the first differences, in one line."""
        counts = f"{self.missing} missing, {self.different} different, {self.unreadable} unreadable"
        extra = f", {self.extra} extra" if self.extra else ""
        bad = self.objects - self.equal
        rows = self.differences[:shown]
        first = "; ".join(
            f"{row.kind} {row.source or row.destination}: {row.reason}" for row in rows
        )
        unlisted = bad + (self.extra or 0) - len(rows)
        more = f"; and {unlisted} more" if unlisted > 0 else ""
        return f"{bad} of {self.objects} objects are not equal: {counts}{extra}; {first}{more}"

    def to_dict(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "is_equal": self.is_equal, **encode(self)}


@dataclass(frozen=True, slots=True)
class _Outcome:
    kind: DifferenceKind | Literal["equal"]
    reason: str = ""
    read_bytes: int = 0
    compared: str = ""


def verify_job(
    job: TransferJob,
    credentials: CredentialSources,
    *,
    with_extra: bool = False,
    listing_only: bool = False,
    download: bool = False,
    parallel: int = PARALLEL_READS,
) -> VerifyReport:
    """Compare what a job would copy with what is at its destination.

    At most `2 * parallel` objects are compared at a time, each read by the mebibyte.

    Args:
        with_extra: also look for objects that the source does not have.
        listing_only: compare names and sizes only; read nothing.
        download: read all objects at both ends, and compare their SHA-256.

    Raises:
        EmptySource, NotFound: there is nothing to compare with.
        StoreError: an end is missing, closed to us, or cannot be listed.
    """
    require_at_least("parallel", parallel, 1)
    with open_ends(job, credentials) as (source, destination):
        comparison = _Comparison(source, destination, listing_only, download)
        tally = _Tally(job, with_extra=with_extra, has_checksums=not listing_only)
        require_file(job)
        rule = rule_of(job)
        use = PatternUse(rule)
        listing = CountingLister(partial(source.list, wants=use.wants), "source")
        found = pairs(
            rule,
            use.watch(listing, rule.source_prefix),
            use.watch(CountingLister(destination.list, "destination"), rule.destination_prefix),
            check_key=partial(check_destination_key, job.destination.kind),
            escape_name=partial(escape_name, job.destination.kind),
        )
        for pair, outcome in map_parallel(found, comparison, parallel):
            tally.add(pair, outcome)
        report = tally.report(unmatched_warnings(use.unmatched(), "at either end", rule))
        require_some(job, source, selected=report.objects, listed=listing.count)
    return report


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Compares one pair; called from several threads."""

    source: ObjectStore
    destination: ObjectStore
    listing_only: bool
    download: bool

    def __call__(self, pair: Pair) -> _Outcome:
        source, destination = pair.source, pair.destination
        if pair.is_missing:
            return _Outcome("missing", "it is not at the source")
        if source is None:
            return _Outcome("extra", "it is not at the source")
        if destination is None:
            # No listing has the folder that is the mark of one at a file system.
            is_mark = pair.key.endswith("/") and not source.size_bytes
            if is_mark and head_all(self.destination, [pair.key])[0] is not None:
                return _Outcome("equal")
            return _Outcome("missing", "it is not at the destination")
        if source.size_bytes != destination.size_bytes:
            return _Outcome(
                "different",
                f"{source.size_bytes} bytes at the source, {destination.size_bytes} at the "
                "destination",
            )
        if self.listing_only:
            return _Outcome("equal")
        try:
            name, here, there, read_bytes = self._checksums(source, destination)
        except (NotFound, PreconditionFailed):
            return _Outcome("different", "it was changed while it was compared")
        except StoreError as error:
            return _Outcome("unreadable", error.message)
        if here != there:
            reason = f"{name} {here} at the source, {there} at the destination"
            return _Outcome("different", reason, read_bytes, name)
        return _Outcome("equal", "", read_bytes, name)

    def _checksums(self, source: ObjectInfo, destination: ObjectInfo) -> tuple[str, str, str, int]:
        """Name of the checksum, its value at both ends in hex, and the bytes read for it."""
        ends = (self.source, source), (self.destination, destination)
        if not self.download:
            infos = [_stated(*end) for end in ends]
            known = [info.crc32c for info in infos]
            digests = {info.md5 for info in infos}
            # Unequal ones prove nothing: a writer may have claimed a wrong one.
            if None in known and len(digests) == 1 and None not in digests:
                return "MD5", "", "", 0
            if any(value is not None for value in known):
                here, there = (
                    f"{_read_crc32c(*end) if value is None else value:08x}"
                    for value, end in zip(known, ends, strict=True)
                )
                return "CRC32C", here, there, known.count(None) * source.size_bytes
        # Both are read. Unlike CRC32C, this hash also finds what an attacker has changed.
        one, other = (_sha256_of(*end) for end in ends)
        return "SHA-256", one.hex(), other.hex(), source.size_bytes + destination.size_bytes


def _stated(store: ObjectStore, listed: ObjectInfo) -> ObjectInfo:
    """The listed version with the checksums that its store states; asks one that is trusted.

    Raises PreconditionFailed if there is another version now, or another StoreError.
    """
    if not store.capabilities.trusts_checksum or listed.crc32c is not None:
        return listed
    known = store.head(listed.key)
    if known.etag != listed.etag:
        raise PreconditionFailed(f"{listed.key!r} was changed since it was listed")
    return known


def crc32c_of(store: ObjectStore, listed: ObjectInfo) -> tuple[int, int]:
    """Checksum of the listed version, and the bytes read for it. Raises as `_stated`."""
    known = _stated(store, listed).crc32c
    return (_read_crc32c(store, listed), listed.size_bytes) if known is None else (known, 0)


def _read_crc32c(store: ObjectStore, listed: ObjectInfo) -> int:
    # Imported late: a comparison of listings needs no checksum library.
    from skyplane_gateway.stores.readback import read_crc32c

    read = partial(read_crc32c, store, listed, listed.size_bytes, is_compared=True)
    return _whole(read, listed)


def _sha256_of(store: ObjectStore, listed: ObjectInfo) -> bytes:
    from skyplane_gateway.stores.readback import read_sha256

    return _whole(partial(read_sha256, store, listed, listed.size_bytes), listed)


def _whole(read: Callable[[], T | None], listed: ObjectInfo, reads: int = 3) -> T:
    """What was read, again where the bytes are not those that the store states."""
    try:
        found = read()
    except ChecksumMismatch:
        if reads == 1:
            raise
        return _whole(read, listed, reads - 1)
    if found is None:
        raise StoreError(f"the body of {listed.key!r} ended early")
    return found


@dataclass(slots=True)
class _Tally:
    """The counts and the first differences of a comparison."""

    job: TransferJob
    with_extra: bool
    has_checksums: bool
    counts: dict[str, int] = field(default_factory=dict)
    size_bytes: int = 0
    read_bytes: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    listed: list[Difference] = field(default_factory=list)

    def add(self, pair: Pair, outcome: _Outcome) -> None:
        self.counts[outcome.kind] = self.counts.get(outcome.kind, 0) + 1
        self.read_bytes += outcome.read_bytes
        if outcome.compared:
            self.compared[outcome.compared] += 1
        if outcome.kind == "equal":
            self.size_bytes += pair.source.size_bytes if pair.source else 0
            return
        if outcome.kind == "extra" and not self.with_extra:
            return
        if len(self.listed) < MAX_LISTED_DIFFERENCES:
            source, destination = self.job.source, self.job.destination
            self.listed.append(
                Difference(
                    outcome.kind,
                    source.url_of(pair.source.key) if pair.source else "",
                    destination.url_of(pair.key),
                    outcome.reason,
                )
            )

    def report(self, warnings: tuple[str, ...]) -> VerifyReport:
        count = self.counts.get
        kinds = ("equal", "missing", "different", "unreadable")
        return VerifyReport(
            source=self.job.source.url,
            destination=self.job.destination.url,
            objects=sum(count(kind, 0) for kind in kinds),
            equal=count("equal", 0),
            missing=count("missing", 0),
            different=count("different", 0),
            unreadable=count("unreadable", 0),
            extra=count("extra", 0) if self.with_extra else None,
            size_bytes=self.size_bytes,
            read_bytes=self.read_bytes,
            has_checksums=self.has_checksums,
            differences=tuple(self.listed),
            warnings=warnings,
            compared=self.compared,
        )
