from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.journal.document import Journal, UploadRow, journal_key
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.journal.orphans import LeftTransfer
from skyplane_gateway.journal.writer import HEARTBEAT_S
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.resume_handle import RESUME_TTL_S
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet, SweptPlace
from skyplane_orchestration.recovery.destination_sweep import (
    JOURNAL_KEPT_S,
    SweepRule,
    opened_for_sweep,
)
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.open import spec_of

ONE, OTHER = "ab" * 16, "cd" * 16

#: When everything in these tests was written.
THEN = 1_000_000.0
RULE = SweepRule(THEN + JOURNAL_KEPT_S + 1)


class Lot:
    """A folder that transfers have written to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = Location(f"file://{folder}/")
        self.key = str(folder)[1:] + "/"
        folder.mkdir(parents=True)

    def open(self) -> ObjectStore:
        return open_store(spec_of(self.place))

    def left_by(self, transfer_key: str, *names: str, epoch: int = 1) -> None:
        with closing(self.open()) as store:
            rows = tuple(
                UploadRow(key, store.create_upload(key), key, "v", 1, 1)
                for key in (self.key + name for name in names)
            )
            journal = Journal(transfer_key, epoch, "r", 1, writer="w", sequence=1, uploads=rows)
            JournalFolder(store, self.key, transfer_key).write(journal, None)
        self.age()

    def orphan(self, name: str) -> None:
        with closing(self.open()) as store:
            store.create_upload(self.key + name)
        self.age()

    def spoil(self, transfer_key: str, epoch: int = 1) -> None:
        with closing(self.open()) as store:
            store.put(journal_key(self.key, transfer_key, epoch), b"{}")
        self.age()

    def age(self) -> None:
        """Everything here was written at `THEN`."""
        for path in self.folder.rglob("*"):
            if path.name.endswith(".parts"):
                head, *rest = path.read_text().splitlines(keepends=True)
                start = head.partition('"initiated": ')[0]
                path.write_text(f'{start}"initiated": {THEN}}}\n' + "".join(rest))
            os.utime(path, (THEN, THEN))

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in found}

    def uploads(self) -> set[str]:
        with closing(self.open()) as store:
            return {row.key.removeprefix(self.key) for row in store.list_uploads(self.key)}


@pytest.fixture
def lot(tmp_path: Path) -> Lot:
    return Lot(tmp_path / "out")


def swept(*places: Location, rule: SweepRule = RULE) -> tuple[SweptPlace, ...]:
    with opened_for_sweep(places, CredentialSources()) as sweep:
        return sweep(rule)


def outcomes(place: SweptPlace) -> list[tuple[str, str]]:
    return [(row.transfer_key, row.outcome) for row in place.transfers]


def left(*places: SweptPlace) -> tuple[str, ...]:
    return SweepReport((), (), dry_run=False, places=places).left


@pytest.mark.parametrize(
    ("ours_s", "store_ahead_s", "outcome"),
    [
        (7200.0 + 86_400.0, -86_400.0, "kept"),
        (7200.0 + 86_400.0, 0.0, "removed"),
        (JOURNAL_KEPT_S - 86_400.0, 86_460.0, "removed"),
        (JOURNAL_KEPT_S - 30.0, 60.0, "kept"),
    ],
)
def test_ages_go_by_the_clock_of_the_store(
    lot: Lot,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ours_s: float,
    store_ahead_s: float,
    outcome: str,
) -> None:
    lot.left_by(ONE, "a")
    monkeypatch.setattr(
        "skyplane_orchestration.recovery.destination_sweep.ahead_s_of", lambda _: store_ahead_s
    )
    (place,) = swept(lot.place, rule=SweepRule(THEN + ours_s))
    assert outcomes(place) == [(ONE, outcome)]
    is_named = f"that of {lot.place.url}" in caplog.text
    assert is_named == (abs(store_ahead_s) > 100.0)


def test_an_old_transfer_is_removed(lot: Lot) -> None:
    lot.left_by(ONE, "a", "sub/b")
    lot.left_by(OTHER, "c", epoch=7)
    (lot.folder / "kept").write_bytes(b"data")
    (place,) = swept(lot.place)
    assert outcomes(place) == [(ONE, "removed"), (OTHER, "removed")]
    assert [[each.url for each in row.uploads] for row in place.transfers] == [
        [f"{lot.place.url}a", f"{lot.place.url}sub/b"],
        [f"{lot.place.url}c"],
    ]
    assert [(row.folder, row.epoch) for row in place.transfers] == [
        (lot.place.url, 1),
        (lot.place.url, 7),
    ]
    assert place.uploads == ()
    assert lot.files() == {f"{lot.folder}/kept": b"data"}
    assert not (lot.folder / ".skyplane").exists()
    assert swept(lot.place) == (SweptPlace(lot.place.url),)


def test_a_young_transfer_is_kept(lot: Lot) -> None:
    lot.left_by(ONE, "a")
    before = lot.files()
    (place,) = swept(lot.place, rule=SweepRule(THEN + JOURNAL_KEPT_S, orphaned_uploads=True))
    assert outcomes(place) == [(ONE, "kept")]
    assert place.transfers[0].age_s == JOURNAL_KEPT_S
    assert lot.files() == before


def test_a_handle_is_good_to_its_last_second(lot: Lot) -> None:
    """Its life begins at the failure, which may be half an hour after the last write."""
    assert JOURNAL_KEPT_S >= RESUME_TTL_S + 2 * HEARTBEAT_S
    lot.left_by(ONE, "a")
    (place,) = swept(lot.place, rule=SweepRule(THEN + HEARTBEAT_S + RESUME_TTL_S))
    assert outcomes(place) == [(ONE, "kept")]


def test_the_newest_journal_counts(lot: Lot) -> None:
    lot.left_by(ONE, "a")
    lot.left_by(ONE, "b", epoch=2)
    newest = lot.folder / ".skyplane" / "jobs" / ONE / "0000000002"
    os.utime(newest, (THEN + 60, THEN + 60))
    before = lot.files()
    (place,) = swept(lot.place)
    assert outcomes(place) == [(ONE, "kept")]
    assert lot.files() == before


def test_a_dry_run_reports_and_changes_nothing(lot: Lot) -> None:
    lot.left_by(ONE, "a")
    lot.orphan("b")
    before = lot.files()
    full = replace(RULE, orphaned_uploads=True)
    (dry,) = swept(lot.place, rule=replace(full, dry_run=True))
    assert lot.files() == before
    assert [row.outcome for row in dry.transfers] == ["would be removed"]
    assert [row.outcome for row in dry.uploads] == ["would be removed"]
    (wet,) = swept(lot.place, rule=full)
    assert wet.transfers == tuple(replace(row, outcome="removed") for row in dry.transfers)
    assert wet.uploads == tuple(replace(row, outcome="removed") for row in dry.uploads)
    assert lot.files() == {}


def test_orphaned_uploads_are_removed_only_on_request(lot: Lot) -> None:
    lot.orphan("a")
    (lot.folder / f".skyplane-upload-{'0' * 32}").write_bytes(b"half")
    lot.age()
    with closing(lot.open()) as store:
        store.create_upload(lot.key + "young")
    (place,) = swept(lot.place)
    assert [(row.url, row.outcome) for row in place.uploads] == [
        (f"{lot.place.url}a", "kept"),
        (f"{lot.place.url}.skyplane-upload-{'0' * 32}", "kept"),
    ]
    assert all("another tool" in row.reason for row in place.uploads)
    assert {row.age_s for row in place.uploads} == {JOURNAL_KEPT_S + 1}
    assert left(place) == ()
    (place,) = swept(lot.place, rule=replace(RULE, orphaned_uploads=True))
    assert [row.outcome for row in place.uploads] == ["removed", "removed"]
    assert lot.uploads() == {"young"}
    assert len(lot.files()) == 2


def test_an_unfinished_journal_of_a_killed_sink_is_removed(lot: Lot) -> None:
    lot.left_by(ONE, "a")
    journals = lot.folder / ".skyplane" / "jobs" / ONE
    (journals / f".skyplane-upload-{'0' * 32}").write_bytes(b"{")
    lot.age()
    (place,) = swept(lot.place, rule=replace(RULE, dry_run=True))
    assert [row.outcome for row in place.uploads] == ["would be removed"]
    (place,) = swept(lot.place)
    assert [row.outcome for row in place.uploads] == ["removed"]
    assert list(lot.folder.iterdir()) == []


def test_an_old_upload_of_a_transfer_that_runs_is_no_orphan(lot: Lot) -> None:
    """Its journal is young; also when only a folder below is swept."""
    lot.left_by(ONE, "sub/a")
    newest = lot.folder / ".skyplane" / "jobs" / ONE / "0000000001"
    os.utime(newest, (RULE.now_unix_s, RULE.now_unix_s))
    rule = replace(RULE, orphaned_uploads=True)
    for place in (lot.place, Location(f"{lot.place.url}sub/")):
        (found,) = swept(place, rule=rule)
        assert found.uploads == ()
    assert lot.uploads() == {"sub/a"}


def test_a_journal_that_cannot_be_read_is_never_deleted(lot: Lot) -> None:
    lot.left_by(ONE, "a")
    lot.spoil(ONE, epoch=2)
    lot.orphan("b")
    before = lot.files()
    rule = replace(RULE, orphaned_uploads=True)
    (place,) = swept(lot.place, rule=replace(rule, dry_run=True))
    assert outcomes(place) == [(ONE, "failed")]
    assert "0000000002' cannot be read" in place.transfers[0].reason
    assert "delete it" not in place.transfers[0].reason, "the others would speak for it"
    # What it may name is kept as well.
    kept = [(row.outcome, "may name it" in row.reason) for row in place.uploads]
    assert kept == [("kept", True)]
    assert len(left(place)) == 1
    (place,) = swept(lot.place, rule=SweepRule(THEN + 1))
    assert (outcomes(place), left(place)) == ([(ONE, "kept")], ())
    assert "cannot be read" in place.transfers[0].reason
    assert lot.files() == before


def test_a_journal_that_cannot_be_read_stays_alone(lot: Lot) -> None:
    """The other journals of the transfer are removed, with their uploads."""
    lot.left_by(ONE, "a")
    lot.spoil(ONE, epoch=2)
    lot.orphan("b")
    (spoilt,) = lot.folder.rglob("0000000002")
    rule = replace(RULE, orphaned_uploads=True)
    for uploads in (1, 0):
        (place,) = swept(lot.place, rule=rule)
        assert outcomes(place) == [(ONE, "failed")]
        assert "0000000002' cannot be read" in place.transfers[0].reason
        assert "delete it by hand" in place.transfers[0].reason
        assert len(place.transfers[0].uploads) == uploads
        assert [row.outcome for row in place.uploads] == ["kept"]
        assert lot.uploads() == {"b"}
        assert list(spoilt.parent.iterdir()) == [spoilt]
    spoilt.unlink()
    (place,) = swept(lot.place, rule=rule)
    assert (left(place), lot.files()) == ((), {})


def test_the_report_never_advises_to_delete_the_journal_of_a_running_transfer(lot: Lot) -> None:
    """It may name the upload of which the old journal has only the intent."""
    lot.orphan("a")
    with closing(lot.open()) as store:
        rows = (UploadRow(lot.key + "a", None, "a", "v", 1, 1, noted_unix_s=THEN),)
        journal = Journal(ONE, 1, "r", 1, writer="w", uploads=rows)
        JournalFolder(store, lot.key, ONE).write(journal, None)
    lot.spoil(OTHER)
    (living,) = lot.folder.rglob(f"{OTHER}/0000000001")
    os.utime(living, (RULE.now_unix_s, RULE.now_unix_s))
    before = lot.files()
    (place,) = swept(lot.place)
    assert outcomes(place) == [(ONE, "failed"), (OTHER, "kept")]
    assert place.transfers[0].reason.startswith(f"an upload of '{lot.key}a' stays open, so")
    assert "delete it" not in place.transfers[0].reason
    assert lot.files() == before


def test_an_upload_that_cannot_be_aborted_keeps_the_journal_that_names_it(
    lot: Lot, monkeypatch: pytest.MonkeyPatch
) -> None:
    lot.left_by(ONE, "a", "b")
    lot.left_by(OTHER, "c")
    lot.orphan("d")
    lot.orphan("e")
    abort = LocalStore.abort_upload

    def stubborn(store: LocalStore, key: str, upload_id: str) -> None:
        if key.endswith(("/a", "/d")):
            raise StoreUnavailable("no answer")
        abort(store, key, upload_id)

    monkeypatch.setattr(LocalStore, "abort_upload", stubborn)
    rule = replace(RULE, orphaned_uploads=True)
    (place,) = swept(lot.place, rule=rule)
    assert outcomes(place) == [(ONE, "failed"), (OTHER, "removed")]
    assert [row.outcome for row in place.uploads] == ["failed", "removed"]
    assert lot.uploads() == {"a", "d"}
    assert len(left(place)) == 2
    monkeypatch.undo()
    (place,) = swept(lot.place, rule=rule)
    assert left(place) == ()
    assert lot.files() == {}


def test_one_destination_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lots = [Lot(tmp_path / name) for name in ("one", "two", "three")]
    for each in lots:
        each.left_by(ONE, "a")
    real = LocalStore.list_uploads

    def broken(store: LocalStore, prefix: str) -> Any:
        if prefix.endswith("two/"):
            raise StoreUnavailable("no answer")
        return real(store, prefix)

    monkeypatch.setattr(LocalStore, "list_uploads", broken)
    places = swept(*(each.place for each in lots))
    assert [place.error for place in places] == ["", "no answer", ""]
    assert [outcomes(place) for place in places] == [[(ONE, "removed")]] * 3
    assert left(*places) == (f"{lots[1].place.url}: no answer",)


def test_a_transfer_that_begins_again_during_the_sweep_is_kept(
    lot: Lot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task runs again between the listing and the removal."""
    lot.left_by(ONE, "a")
    look = LeftTransfer.named

    def meanwhile(found: LeftTransfer, store: ObjectStore) -> Any:
        named = look(found, store)
        lot.left_by(ONE, "b", epoch=2)
        return named

    monkeypatch.setattr(LeftTransfer, "named", meanwhile)
    (place,) = swept(lot.place)
    assert outcomes(place) == [(ONE, "kept")]
    assert lot.uploads() == {"a", "b"}


def test_journals_are_found_at_any_depth_unless_the_sweep_is_not_recursive(tmp_path: Path) -> None:
    top = Lot(tmp_path / "top")
    below = Lot(tmp_path / "top" / "a" / "b")
    top.left_by(ONE, "x")
    below.left_by(ONE, "x")
    (flat,) = swept(top.place, rule=replace(RULE, dry_run=True, recursive=False))
    assert [row.folder for row in flat.transfers] == [top.place.url]
    (deep,) = swept(Location(top.place.url.rstrip("/")))
    assert [row.folder for row in deep.transfers] == [top.place.url, below.place.url]
    assert top.files() == {}


def test_an_invalid_destination_is_refused_before_the_sweep(lot: Lot) -> None:
    lot.left_by(ONE, "a")
    before = lot.files()
    with pytest.raises(ConfigurationInvalid):
        swept(lot.place, Location("s3://b/", credential_ref="env:NOTHING"))
    assert lot.files() == before


def test_a_missing_folder_has_nothing_to_sweep(tmp_path: Path) -> None:
    place = Location(f"file://{tmp_path}/nowhere/")
    assert swept(place) == (SweptPlace(place.url),)


def test_the_report_is_a_document_of_bounded_length(lot: Lot) -> None:
    lot.left_by(ONE, *(f"k{number}" for number in range(5)))
    for number in range(4):
        lot.orphan(f"o{number}")
    places = swept(lot.place, rule=replace(RULE, dry_run=True))
    report = SweepReport((), ("f",), dry_run=True, places=places)
    whole = report.to_dict()
    assert (whole["schema_version"], whole["kept"], whole["left"]) == (1, ["f"], [])
    (place,) = whole["destinations"]
    assert (len(place["uploads"]), place["more"]) == (4, 0)
    assert place["transfers"] == [
        {
            "folder": lot.place.url,
            "transfer_key": ONE,
            "epoch": 1,
            "age_s": JOURNAL_KEPT_S + 1,
            "outcome": "would be removed",
            "reason": "",
            "uploads": [
                {"url": each.url, "upload_id": each.upload_id}
                for each in places[0].transfers[0].uploads
            ],
        }
    ]
    (short,) = report.to_dict(2)["destinations"]
    assert (len(short["uploads"]), short["more"]) == (2, 2)
    assert len(short["transfers"][0]["uploads"]) == 2
    assert report.summary == (
        "fleets would be removed: 0, kept: 1; journals of transfers would be removed: 1, kept: 0; "
        "orphaned uploads would be removed: 0, kept: 4"
    )


def test_an_error_names_the_first_of_what_is_left() -> None:
    fleets = tuple(SweptFleet(f"f{number}", "old", (), "stays") for number in range(12))
    report = SweepReport(fleets, (), dry_run=False)
    assert report.failure.endswith("fleet f9: stays; and 2 more")
    assert len(report.left) == 12
    assert SweepReport(fleets[:1], (), dry_run=False).failure == "fleet f0: stays"
    assert SweepReport((), (), dry_run=False).failure == ""
