"""What the orchestrator asks of a fleet in the course of a transfer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.journal.document import (
    epoch_of,
    folder_of_destination,
    journals_prefix,
    place_of,
)
from skyplane_gateway.objects import Credentials
from skyplane_gateway.retry import RetryPolicy
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import (
    AddressTaken,
    FleetLost,
    GatewayLost,
    GatewayUnreachable,
    NotAuthorised,
    SkyplaneError,
    UnknownTransfer,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.recovery.cleanup import clear_from_here
from skyplane_orchestration.recovery.failover import FleetView, Submit, Tenure
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.storage.open import (
    open_location,
    source_spec,
    spec_of,
    transfer_spec_of,
)
from skyplane_orchestration.timing import timed
from skyplane_orchestration.transfer.fleet_view import unended, view_of
from skyplane_orchestration.transfer.sessions import FleetSessions

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubmittedTransfer:
    """A transfer that a lead has taken on.

    Attributes:
        lead: the gateway that runs it.
        joined: it ran already when it was submitted.
    """

    transfer_key: str
    epoch: int
    lead: str
    joined: bool


class Steering:
    """The orchestrator's verbs on one fleet."""

    def __init__(self, sessions: FleetSessions) -> None:
        self._sessions = sessions
        self._fleet = sessions.fleet
        #: A gateway of the fleet has answered, so the fleet secret is the right one.
        self._is_known = False

    @property
    def _ends(self) -> tuple[GatewayHandle, ...]:
        """Sources and sinks, each once."""
        ends = {handle.node: handle for handle in (*self._fleet.sources, *self._fleet.sinks)}
        return tuple(ends.values())

    # -- submit

    def submit(
        self,
        transfer_key: str,
        job: TransferJob,
        credentials: CredentialSources,
        *,
        least_epoch: int = 1,
    ) -> SubmittedTransfer:
        """Hand all ends their stores, then ask the first source to lead.

        What runs is joined, and so is what ended well while its orchestrator was away: until
        somebody has heard of that and released the ends, it is the same transfer.

        Args:
            least_epoch: lead in no older one, whatever the gateways remember.

        Raises:
            FleetLost: gateways of the fleet do not answer, or have lost each other.
            NotAuthorised: as `look`.
            StoreError: an end is missing, closed to its gateways, or does not answer.
        """
        view, silent = self._look(transfer_key)
        newest = 0
        if view.to_join is None and silent is None:
            place = job.destination
            with open_location(place, credentials, RetryPolicy()) as store:
                newest = newest_journal(store, job, transfer_key)
            if newest >= view.epoch:
                # Of a fleet that is gone, or of somebody who was quicker than this look.
                view, silent = self._look(transfer_key)
        if view.to_join is not None:
            return self._join(transfer_key, view.to_join)
        if silent is not None:
            raise _lost(silent) from silent
        epoch = max(view.epoch, least_epoch, newest + 1)
        first = Tenure(self._fleet.sources[0].node, epoch)
        return self.take_over(
            transfer_key, job, credentials, Submit(first, view.sources, view.sinks)
        )

    def _join(self, transfer_key: str, tenure: Tenure) -> SubmittedTransfer:
        """Follow that lead from now on, so that nobody takes the fleet down meanwhile.

        Raises:
            FleetLost: somebody just has.
        """
        joined = SubmittedTransfer(transfer_key, tenure.epoch, tenure.lead, joined=True)
        try:
            self._sessions.of(self._fleet.gateway(tenure.lead)).transfer_status(transfer_key)
        except GatewayUnreachable as error:
            raise _lost(error) from error
        except UnknownTransfer:
            log.info("%s does not know transfer %s any more", tenure.lead, transfer_key)
        return joined

    def take_over(
        self,
        transfer_key: str,
        job: TransferJob,
        credentials: CredentialSources,
        order: Submit,
    ) -> SubmittedTransfer:
        """Attach the ends that are named, then ask the named source to lead.

        Raises:
            FleetLost: one of them does not answer, or they have lost each other.
            StaleEpoch: one of them knows a newer epoch.
            StoreError: an end is missing, closed to its gateways, or does not answer.
        """
        epoch = order.tenure.epoch
        with timed("transfer: opening the stores on the gateways"):
            for side, nodes in (("source", order.sources), ("sink", order.sinks)):
                self._attach(side, nodes, transfer_key, epoch, job, credentials)
        lead = self._fleet.gateway(order.tenure.lead)
        try:
            answer = self._sessions.of(lead).submit(
                transfer_key, epoch=epoch, spec=transfer_spec_of(job)
            )
        except (GatewayUnreachable, GatewayLost) as error:
            raise _lost(error) from error
        return SubmittedTransfer(
            transfer_key, int(answer["epoch"]), lead.node, joined=bool(answer["joined"])
        )

    def look(self, transfer_key: str) -> FleetView:
        """What the ends that answer know of a transfer.

        Raises:
            NotAuthorised: an end refuses us, or none has ever proved to be of the fleet.
        """
        return self._look(transfer_key)[0]

    def _look(self, transfer_key: str) -> tuple[FleetView, GatewayUnreachable | None]:
        """The view, and why an end is not in it, if one is not.

        The first source is asked last: what the others have seen of a transfer that it
        leads, it knows of.
        """
        first = self._fleet.sources[0]
        others = [handle for handle in self._ends if handle.node != first.node]
        documents: dict[str, dict[str, Any]] = {}
        silent: GatewayUnreachable | None = None
        strangers = 0
        for handles in (others, [first]):
            answers, errors = self._sessions.each_that_answers(
                handles, lambda _, client: client.status()
            )
            documents |= answers
            for error in errors.values():
                if not isinstance(error, GatewayUnreachable):
                    raise error
                silent = error
                strangers += isinstance(error, AddressTaken)
        self._is_known = self._is_known or bool(documents)
        if silent is not None and strangers == len(self._ends) and not self._is_known:
            raise NotAuthorised(silent.message) from silent
        return view_of(self._fleet, documents, transfer_key), silent

    def _attach(
        self,
        side: str,
        nodes: Iterable[str],
        transfer_key: str,
        epoch: int,
        job: TransferJob,
        credentials: CredentialSources,
    ) -> None:
        location = job.source if side == "source" else job.destination
        store = source_spec(job) if side == "source" else spec_of(location)
        secret: Credentials | None = credentials.resolve(location)

        def attach(_: GatewayHandle, client: ControlClient) -> None:
            client.attach(
                transfer_key,
                epoch=epoch,
                side=side,
                store=store,
                credentials=secret,
                verify=job.verify,
            )

        try:
            self._sessions.each([self._fleet.gateway(node) for node in nodes], attach)
        except GatewayUnreachable as error:
            raise _lost(error) from error

    # -- while it runs, and after

    def status(self, submitted: SubmittedTransfer) -> TransferStatus:
        """Raises GatewayUnreachable when the lead does not answer."""
        lead = self._sessions.of(self._fleet.gateway(submitted.lead))
        document = lead.transfer_status(submitted.transfer_key)
        self._is_known = True
        return TransferStatus.from_document(document)

    def followers(self, submitted: SubmittedTransfer) -> int:
        """Follow the transfer no longer; how many others still do, as far as anybody knows."""
        lead = self._sessions.of(self._fleet.gateway(submitted.lead))
        try:
            document = lead.transfer_status(submitted.transfer_key, renew=False)
        except SkyplaneError as error:
            log.info("%s does not tell who follows the transfer: %s", submitted.lead, error)
            return 0
        # A gateway of the release before does not tell.
        return int(document.get("followers", 0))

    def retire(self) -> bool:
        """Have the fleet take no new transfer; whether it may go down: none runs there."""
        answers, _ = self._sessions.each_that_answers(
            self._fleet.gateways, lambda _, client: client.status()
        )
        rows = (row for document in answers.values() for row in document["leading"].values())
        if any(row["state"] == "running" for row in rows):
            return False
        # One may begin between the look and this.
        drained, _ = self._sessions.each_that_answers(
            self._fleet.sources, lambda _, client: client.drain(unless_leading=True)
        )
        return all(drained.values())

    def report_rows(self, submitted: SubmittedTransfer) -> Iterator[dict[str, Any]]:
        """One row per object, in the order in which they ended."""
        lead = self._sessions.of(self._fleet.gateway(submitted.lead))
        offset, complete = 0, False
        while not complete:
            page = lead.report(submitted.transfer_key, offset=offset)
            yield from page["rows"]
            offset, complete = page["next_offset"], page["complete"]

    def cancel(self, submitted: SubmittedTransfer) -> None:
        """Cancel at the lead first, then at the other ends; relays know of no transfer."""
        self._cancel(submitted.transfer_key, submitted.lead, self._ends)

    def _cancel(self, key: str, lead: str, ends: Iterable[GatewayHandle]) -> None:
        first = [handle for handle in ends if handle.node == lead]
        others = [handle for handle in ends if handle.node != lead]
        for handles in (first, others):
            self._sessions.each_that_answers(handles, lambda _, client: client.cancel(key))

    def stop(self, submitted: SubmittedTransfer, reason: str) -> None:
        """Have the lead fail the transfer for that reason and keep what it has begun.

        Raises GatewayUnreachable when the lead does not answer.
        """
        lead = self._sessions.of(self._fleet.gateway(submitted.lead))
        lead.stop(submitted.transfer_key, reason)

    def release(self, submitted: SubmittedTransfer, *, journals_in: str | None = None) -> bool:
        """Have the ends forget stores and credentials of an ended transfer; best effort.

        Args:
            journals_in: the folder of its journals, which go as well.

        Returns:
            Whether a sink has removed them.
        """
        answers, errors = self._sessions.each_that_answers(
            self._ends,
            lambda _, client: client.release(
                submitted.transfer_key, submitted.epoch, journals_in=journals_in
            ),
        )
        for node, error in errors.items():
            log.info("%s did not release the transfer: %s", node, error)
        return any(answers.values())

    def release_success(
        self, submitted: SubmittedTransfer, job: TransferJob, credentials: CredentialSources
    ) -> tuple[str, ...]:
        """`release` of a transfer whose success is known now: nobody will go on by its
        journals. Where no sink can remove them, it is done from here; warnings if not."""
        folder = folder_of_destination(job.destination.key, recursive=job.recursive)
        if self.release(submitted, journals_in=folder):
            return ()
        return clear_from_here(job, submitted.transfer_key, submitted.epoch, credentials)

    def abort_left_uploads(
        self, job: TransferJob, status: TransferStatus, credentials: CredentialSources
    ) -> tuple[str, ...]:
        """Abort, from here, uploads that no sink could abort; warnings for what stays."""
        if not status.open_uploads:
            return ()
        warnings = []
        with open_location(job.destination, credentials) as store:
            for upload in status.open_uploads:
                try:
                    store.abort_upload(upload["key"], upload["upload_id"])
                except SkyplaneError as error:
                    warnings.append(
                        f"the upload {upload['upload_id']} of {upload['key']!r} stays open: {error}"
                    )
        return tuple(warnings)

    def renew_credentials(
        self, submitted: SubmittedTransfer, job: TransferJob, credentials: CredentialSources
    ) -> None:
        """Hand fresh credentials to the ends that need them; best effort."""
        answers, _ = self._sessions.each_that_answers(self._ends, lambda _, client: client.status())
        key = submitted.transfer_key
        for side, location in (("source", job.source), ("sink", job.destination)):
            nodes = [
                self._fleet.gateway(node)
                for node, document in answers.items()
                if side in document.get("needs_credentials", {}).get(key, ())
            ]
            if nodes:
                fresh = self._hand_over(side, nodes, submitted, credentials.resolve(location))
                log.info("fresh credentials of the %s went to %s", side, counted(fresh, "gateway"))

    def _hand_over(
        self,
        side: str,
        handles: Sequence[GatewayHandle],
        submitted: SubmittedTransfer,
        fresh: Credentials | None,
    ) -> int:
        """To how many gateways the credentials went."""
        if fresh is None:
            return 0

        def renew(_: GatewayHandle, client: ControlClient) -> None:
            client.renew_credentials(
                submitted.transfer_key, epoch=submitted.epoch, side=side, credentials=fresh
            )

        answers, errors = self._sessions.each_that_answers(handles, renew)
        for node, error in errors.items():
            log.warning("%s takes no fresh credentials: %s", node, error)
        return len(answers)

    def log_tails(self) -> dict[str, str]:
        """Node -> the end of its log, of those that answer."""
        tails, _ = self._sessions.each_that_answers(
            self._fleet.gateways, lambda _, client: client.log_tail()
        )
        return tails

    def wind_up(self) -> dict[str, str]:
        """Cancel what has not ended, fetch log tails.

        The gateways are not asked to end: whoever provisions them ends them, and nobody else
        brings the fleet up between.

        Where nobody who answers leads a transfer, its ends abort and remove what they know of.

        Returns:
            Node -> log tail.
        """
        answers, _ = self._sessions.each_that_answers(
            self._fleet.gateways, lambda _, client: client.status()
        )
        # One that does not answer would hold up the others' end.
        ends = [handle for handle in self._ends if handle.node in answers]
        for key, lead in unended(answers).items():
            self._cancel(key, lead, ends)
        handles = [self._fleet.gateway(node) for node in answers]
        tails, _ = self._sessions.each_that_answers(handles, lambda _, client: client.log_tail())
        return tails


def _lost(error: GatewayUnreachable | GatewayLost) -> FleetLost:
    return FleetLost(f"the fleet is gone, or cannot be reached from here: {error.message}")


def newest_journal(store: ObjectStore, job: TransferJob, transfer_key: str) -> int:
    """The newest epoch that has left a journal at the destination; 0 for none.

    A fleet that was built anew remembers nothing, and an epoch with a journal is over.
    """
    folder = folder_of_destination(job.destination.key, recursive=job.recursive)
    rows = store.list(journals_prefix(folder, transfer_key))
    own = (row.key for row in rows if place_of(row.key) == (folder, transfer_key))
    return max((epoch_of(key) or 0 for key in own), default=0)
