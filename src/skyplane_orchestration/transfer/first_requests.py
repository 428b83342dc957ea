"""The first requests of the steps of a run, sent at the same time.

Each step takes its own answer, so that the run waits for the slowest one only.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Semaphore

from skyplane_gateway.manifest.document import Pointer, read_pointer
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.parallel import in_background
from skyplane_orchestration.recovery.destination_cleanup import newest_journal_epoch
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.empty_source import named_in_errors
from skyplane_orchestration.storage.manifest.elsewhere import ReadPointer, manifest_store
from skyplane_orchestration.storage.open import journal_folder, open_location
from skyplane_orchestration.storage.preflight import located_ends
from skyplane_orchestration.storage.source_listing import SourceListing


class FirstRequests:
    """Asks the destination whether it may be listed, and for the newest epoch that has a journal
    there; the source for its first page, which `listing` keeps; both for their regions.

    Args:
        with_regions: else `ends` asks for those when it is called.
    """

    def __init__(
        self,
        job: TransferJob,
        transfer_key: str,
        credentials: CredentialSources,
        listing: SourceListing,
        *,
        with_regions: bool,
    ) -> None:
        self._job, self._key, self._credentials = job, transfer_key, credentials
        self._listing = listing
        self._opened = Semaphore(0)
        listing.begun = in_background(self._read_page)
        self._epoch: Future[int] | None = None
        #: The pointer of the manifest of the destination; see `open_manifest`.
        self.manifest: ReadPointer | None = (
            in_background(self._read_pointer).result if job.reads_manifest else None
        )
        self._checked = in_background(self._ask_destination)
        self._ends = in_background(self._find_ends) if with_regions else None
        for one in (listing.begun, self._checked):
            one.add_done_callback(lambda _: self._opened.release())

    def await_sent(self) -> None:
        """Wait until the stores are open: who loads modules before that delays the requests."""
        for _ in range(2):
            self._opened.acquire()

    def check_destination(self) -> None:
        """Raises NotFound or another StoreError; see `preflight.check_place`."""
        self._checked.result()

    def journal_epoch(self) -> int | None:
        """0 for none. None where the destination did not say: ask it with more patience."""
        try:
            self._checked.result()
            return None if self._epoch is None else self._epoch.result()
        except SkyplaneError:
            return None

    def has_tried(self, place: Location) -> bool:
        """Whether a store that this process opens for an end needs no trial of its own.

        A service of S3 may sign for another region than the job gives, and says so at first.
        """
        given = {one.url: one.region for one in (self._job.source, self._job.destination)}
        return not (place.kind == "s3" and place.endpoint_url and given[place.url])

    def ends(self) -> tuple[Location, Location]:
        """Source and destination with their regions; see `preflight.located_ends`."""
        return self._find_ends() if self._ends is None else self._ends.result()

    def _read_page(self) -> None:
        with self._open(self._job.source) as store:
            self._listing.read_page(self._job, store)

    def _read_pointer(self) -> tuple[Pointer, str] | None:
        with (
            open_location(self._job.destination, self._credentials) as store,
            manifest_store(self._job, store, self._credentials) as (kept_in, at),
        ):
            return read_pointer(kept_in, journal_folder(self._job), at)

    def _ask_destination(self) -> None:
        place, folder = self._job.destination, journal_folder(self._job)
        with named_in_errors("destination"), self._open(place) as store:
            epoch = in_background(partial(newest_journal_epoch, store, folder, self._key))
            self._epoch = epoch
            try:
                store.check()
            finally:
                epoch.exception()

    @contextmanager
    def _open(self, place: Location) -> Iterator[ObjectStore]:
        with open_location(place, self._credentials) as store:
            self._opened.release()
            yield store

    def _find_ends(self) -> tuple[Location, Location]:
        return located_ends(self._job.source, self._job.destination, self._credentials)
