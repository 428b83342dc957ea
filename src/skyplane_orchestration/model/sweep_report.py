"""The report of a sweep: fleets, and what transfers have left at destinations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

SCHEMA_VERSION: Final = 1

#: Most items that an error names.
_NAMED_FAILURES: Final = 10

#: `failed`: it should have been removed, and was not.
Outcome = Literal["removed", "would be removed", "kept", "failed"]


@dataclass(frozen=True, slots=True)
class SweptFleet:
    """A fleet that a sweep removed, or would remove.

    Args:
        key: fleet key; empty if it is not known.
        reason: why it is an orphan.
        gateways: nodes that still ran.
        error: why it could not be removed; empty if it was.
    """

    key: str
    reason: str
    gateways: tuple[str, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class NamedUpload:
    """An open upload that a journal names.

    Args:
        url: of the object that is uploaded.
        upload_id: None for all open uploads of the key: the journal has the intent to create
            one, without its id.
    """

    url: str
    upload_id: str | None


@dataclass(frozen=True, slots=True)
class SweptTransfer:
    """A transfer that had journals at a destination.

    Args:
        folder: URL of the folder that it wrote to.
        epoch: its newest epoch.
        age_s: time since its journal was last written.
        uploads: uploads in its journals; aborted before the journals are deleted.
        reason: why it was kept, or what failed; empty if it was removed.
    """

    folder: str
    transfer_key: str
    epoch: int
    age_s: float
    outcome: Outcome
    reason: str = ""
    uploads: tuple[NamedUpload, ...] = ()


@dataclass(frozen=True, slots=True)
class SweptUpload:
    """An open upload that no journal names, or an unfinished file of a file store.

    Args:
        url: of the object that is uploaded, or of the unfinished file itself.
        upload_id: empty for an unfinished file.
        age_s: time since the upload began, or since the file was last written.
    """

    url: str
    upload_id: str
    age_s: float
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SweptPlace:
    """The sweep of one destination.

    Args:
        url: of the destination.
        error: why the sweep of it stopped early; empty if it did not.
    """

    url: str
    transfers: tuple[SweptTransfer, ...] = ()
    uploads: tuple[SweptUpload, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The report of a sweep.

    Args:
        orphans: fleets that it removed, tried to remove or, in a dry run, would remove.
        kept: keys of the deployment's other fleets.
        dry_run: nothing was changed.
        places: the swept destinations.
    """

    orphans: tuple[SweptFleet, ...]
    kept: tuple[str, ...]
    dry_run: bool
    places: tuple[SweptPlace, ...] = ()

    @property
    def left(self) -> tuple[str, ...]:
        """One line for each item that should have been removed and was not."""
        return tuple(self._left())

    def _left(self) -> Iterator[str]:
        for fleet in self.orphans:
            if fleet.error:
                yield f"fleet {fleet.key or '(unknown)'}: {fleet.error}"
        for place in self.places:
            for transfer in place.transfers:
                if transfer.outcome == "failed":
                    yield (
                        f"journals of transfer {transfer.transfer_key} in {transfer.folder}: "
                        f"{transfer.reason}"
                    )
            for upload in place.uploads:
                if upload.outcome == "failed":
                    yield f"open upload of {upload.url}: {upload.reason}"
            if place.error:
                yield f"{place.url}: {place.error}"

    @property
    def failure(self) -> str:
        """The first lines of `left`, for an error; empty if there are none."""
        shown = self.left[:_NAMED_FAILURES]
        more = len(self.left) - len(shown)
        return "; ".join((*shown, f"and {more} more") if more else shown)

    @property
    def summary(self) -> str:
        """One line of counts."""
        done = "would be removed" if self.dry_run else "removed"
        gone = sum(not fleet.error for fleet in self.orphans)
        parts = [f"fleets {done}: {gone}, kept: {len(self.kept)}"]
        if self.places:
            transfers = [row for place in self.places for row in place.transfers]
            uploads = [row for place in self.places for row in place.uploads]
            parts += [
                f"journals of transfers {done}: {_count(transfers, done)}, "
                f"kept: {_count(transfers, 'kept')}",
                f"orphaned uploads {done}: {_count(uploads, done)}, "
                f"kept: {_count(uploads, 'kept')}",
            ]
        if self.left:
            parts.append(f"things that could not be removed: {len(self.left)}")
        return "; ".join(parts)

    def to_dict(self, most_rows: int | None = None) -> dict[str, Any]:
        """The report as a document; lists have `most_rows` at most, and `more` counts the rest."""
        return {
            "schema_version": SCHEMA_VERSION,
            "dry_run": self.dry_run,
            "orphans": [asdict(fleet) for fleet in self.orphans],
            "kept": list(self.kept),
            "destinations": [_place(place, most_rows) for place in self.places],
            "left": list(self.left[:most_rows]),
        }


def _place(place: SweptPlace, most_rows: int | None) -> dict[str, Any]:
    rows = (*place.transfers, *place.uploads)
    shown = len(place.transfers[:most_rows]) + len(place.uploads[:most_rows])
    return {
        "url": place.url,
        "error": place.error,
        "transfers": [_transfer(row, most_rows) for row in place.transfers[:most_rows]],
        "uploads": [asdict(row) for row in place.uploads[:most_rows]],
        "more": len(rows) - shown,
    }


def _transfer(row: SweptTransfer, most_rows: int | None) -> dict[str, Any]:
    return {**asdict(row), "uploads": [asdict(each) for each in row.uploads[:most_rows]]}


def _count(rows: Sequence[SweptTransfer] | Sequence[SweptUpload], outcome: str) -> int:
    return sum(row.outcome == outcome for row in rows)
