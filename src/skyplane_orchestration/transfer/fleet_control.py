"""The control calls that the orchestrator makes to the gateways of one fleet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.config import AttachOrder, End, Group
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.stores import ListedRows
from skyplane_orchestration.errors import (
    AddressTaken,
    FleetLost,
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    NotAuthorised,
    SkyplaneError,
    UnknownTransfer,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import STORE_IDENTITY, GatewayHandle
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.recovery.destination_cleanup import newest_journal_epoch
from skyplane_orchestration.recovery.failover_decisions import FleetView, Submit, Tenure
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.manifest.elsewhere import handed_manifest
from skyplane_orchestration.storage.open import journal_folder, open_location, transfer_spec_of
from skyplane_orchestration.storage.server_side_eligibility import why_not_server_side
from skyplane_orchestration.timing import timed
from skyplane_orchestration.transfer.first_requests import FirstRequests
from skyplane_orchestration.transfer.fleet_sessions import FleetSessions
from skyplane_orchestration.transfer.gateway_credentials import (
    ENDS,
    SentCredentials,
    opens_itself,
    place_of,
    reaches_of,
)
from skyplane_orchestration.transfer.gateway_statuses import unended_transfers, view_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubmittedTransfer:
    """A transfer and the lead that accepted it.

    Attributes:
        lead: node of the gateway that runs the transfer.
        joined: the transfer ran already when it was submitted.
    """

    transfer_key: str
    epoch: int
    lead: str
    joined: bool


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """A transfer as a fleet gets it; every retry has the same `transfer_key`.

    Attributes:
        group: of the transfers with which it may share chunks; None for none.
    """

    transfer_key: str
    job: TransferJob
    sent: SentCredentials
    group: Group | None = None

    @property
    def credentials(self) -> CredentialSources:
        """The whole ones, which stay on this machine."""
        return self.sent.sources


class FleetControl:
    """Calls the gateways of one fleet.

    Args:
        sealing_key_of: the key with which the ends of a transfer encrypt, by transfer key and
            `Fleet.start_id`.
    """

    def __init__(
        self, sessions: FleetSessions, sealing_key_of: Callable[[str, str], bytes]
    ) -> None:
        self._sessions = sessions
        self._sealing_key_of = sealing_key_of
        self._fleet = sessions.fleet
        #: A gateway of the fleet has answered, so the fleet secret is correct.
        self._is_trusted = False

    @property
    def _ends(self) -> tuple[GatewayHandle, ...]:
        """The source and sink gateways, each once; relays know no transfer."""
        ends = {handle.node: handle for handle in (*self._fleet.sources, *self._fleet.sinks)}
        return tuple(ends.values())

    def _lead(self, submitted: SubmittedTransfer) -> ControlClient:
        return self._sessions.of(self._fleet.gateway(submitted.lead))

    # -- submit

    def submit(
        self,
        request: TransferRequest,
        *,
        least_epoch: int = 1,
        listed: ListedRows | None = None,
        asked: FirstRequests | None = None,
    ) -> SubmittedTransfer:
        """Attach the stores to all ends, then submit the job to the first source.

        Joins a transfer that runs already, or whose success no orchestrator has fetched yet.

        Args:
            least_epoch: the lowest epoch to use, whatever the gateways remember.
            listed: rows of the source for the lead of the first epoch. A lead in another process
                does not get them, and a later one lists what is there by then.
            asked: what this process has just asked both stores, where it is the gateways, too.

        Raises:
            FleetLost: gateways of the fleet do not answer, or have lost each other.
            NotAuthorised: see `inspect`.
            StoreError: an end is missing, closed to its gateways, or does not answer.
        """
        view, silent = self._inspect(request.transfer_key)
        if view.has_other_routes:
            raise FleetLost("the fleet has other routes than its document says")
        newest = 0
        if view.to_join is None and silent is None:
            newest = _newest_journal_epoch(request, asked)
            if newest >= view.next_epoch:
                # A former fleet wrote it, or another orchestrator has submitted meanwhile.
                view, silent = self._inspect(request.transfer_key)
        if view.to_join is not None:
            return self._join(request.transfer_key, view.to_join)
        if silent is not None:
            raise _fleet_lost(silent) from silent
        epoch = max(view.next_epoch, least_epoch, newest + 1)
        first = Tenure(self._fleet.sources[0].node, epoch)
        order = Submit(first, view.sources, view.sinks)
        return self.take_over(request, order, listed if epoch == 1 else None, asked)

    def _join(self, transfer_key: str, tenure: Tenure) -> SubmittedTransfer:
        """Poll the lead, so that nobody tears the fleet down meanwhile. Raises FleetLost."""
        joined = SubmittedTransfer(transfer_key, tenure.epoch, tenure.lead, joined=True)
        try:
            self._lead(joined).transfer_status(transfer_key)
        except GatewayUnreachable as error:
            raise _fleet_lost(error) from error
        except UnknownTransfer:
            log.info("%s does not know transfer %s any more", tenure.lead, transfer_key)
        return joined

    def take_over(
        self,
        request: TransferRequest,
        order: Submit,
        listed: ListedRows | None = None,
        asked: FirstRequests | None = None,
    ) -> SubmittedTransfer:
        """Attach the stores to the named gateways, then submit to the named lead.

        Raises:
            FleetLost: one of them does not answer, or they have lost each other.
            StaleEpoch: one of them knows a newer epoch.
            StoreError: an end is missing, closed to its gateways, or does not answer.
        """
        epoch = order.tenure.epoch
        with timed("transfer: opening the stores on the gateways"):
            self._attach(request, order, asked)
        lead = self._fleet.gateway(order.tenure.lead)
        spec = replace(
            transfer_spec_of(request.job),
            server_side_copy=not why_not_server_side(request.job),
            sinks=tuple(one.node for one in self._fleet.sinks if self._fleet.whole_plan),
            handed_manifest=handed_manifest(request.job, request.credentials),
        )
        try:
            answer = self._sessions.of(lead).submit(
                request.transfer_key, epoch=epoch, spec=spec, listed=listed
            )
        except (GatewayUnreachable, GatewayLost) as error:
            raise _fleet_lost(error) from error
        return SubmittedTransfer(
            request.transfer_key, int(answer["epoch"]), lead.node, joined=bool(answer["joined"])
        )

    def _attach(self, request: TransferRequest, order: Submit, asked: FirstRequests | None) -> None:
        """Attach both sides; gateways at the same time."""
        nodes: dict[End, tuple[str, ...]] = {"source": order.sources, "sink": order.sinks}
        orders = {
            side: self._attach_order(request, side, nodes[side], order.tenure.epoch, asked)
            for side in ENDS
        }

        def attach(handle: GatewayHandle, client: ControlClient) -> None:
            for side in ENDS:
                if handle.node in nodes[side]:
                    client.attach(request.transfer_key, orders[side])

        both = dict.fromkeys((*nodes["source"], *nodes["sink"]))
        try:
            self._sessions.each([self._fleet.gateway(node) for node in both], attach)
        except GatewayUnreachable as error:
            raise _fleet_lost(error) from error

    def _attach_order(
        self,
        request: TransferRequest,
        side: End,
        nodes: Sequence[str],
        epoch: int,
        asked: FirstRequests | None,
    ) -> AttachOrder:
        job = request.job
        location = place_of(job, side)
        reach = reaches_of(job, side)[0]
        has_identity = all(self._opens_itself(location, node) for node in nodes)
        credentials = None if has_identity else self._credentials(request, side)
        total = job.bytes_per_s if side == "source" else None
        sealing_key = None
        if self._fleet.encrypts(job.encrypt):
            sealing_key = self._sealing_key_of(request.transfer_key, self._fleet.start_id)
        # Files have no limited credentials, and a folder of them may not be there yet.
        tried_prefix = "" if location.kind == "file" else reach.tried_prefix
        is_tried = asked is not None and asked.has_tried(location)
        return AttachOrder(
            epoch,
            side,
            reach.store,
            credentials,
            job.verify,
            # The limit is that of the whole transfer.
            bytes_per_s=None if total is None else total / len(nodes),
            sealing_key=None if sealing_key is None else sealing_key.hex(),
            tried_prefix=None if is_tried else tried_prefix,
            group=request.group,
        )

    def _opens_itself(self, location: Location, node: str) -> bool:
        """Whether a gateway opens a store with the identity of its instance."""
        return opens_itself(location, self._fleet.gateway(node).details.get(STORE_IDENTITY, ""))

    def _credentials(self, request: TransferRequest, side: End) -> Credentials | None:
        """Fresh ones for the gateways of a side. Raises as `SentCredentials.of`."""
        if self._fleet.host:
            # The gateways run on this machine, so nothing leaves it.
            return request.credentials.resolve(place_of(request.job, side))
        return request.sent.of(request.job, side)

    # -- status

    def inspect(self, transfer_key: str) -> FleetView:
        """What the sources and sinks that answer know of a transfer.

        Raises NotAuthorised: a gateway refuses the caller, or none ever proved to be of the fleet.
        """
        return self._inspect(transfer_key)[0]

    def _inspect(self, transfer_key: str) -> tuple[FleetView, GatewayUnreachable | None]:
        """The view, and the error of a gateway that does not answer, if any.

        Asks the first source last: if it leads, it knows all that the others have seen.
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
        self._is_trusted = self._is_trusted or bool(documents)
        if silent is not None and strangers == len(self._ends) and not self._is_trusted:
            raise NotAuthorised(silent.message) from silent
        return view_of(self._fleet, documents, transfer_key), silent

    def status(self, submitted: SubmittedTransfer, *, wait_s: float = 0.0) -> TransferStatus:
        """The status after up to `wait_s`, or at the end of the transfer.

        Raises GatewayUnreachable when the lead does not answer.
        """
        document = self._lead(submitted).transfer_status(submitted.transfer_key, wait_s=wait_s)
        self._is_trusted = True
        return TransferStatus.from_document(document)

    def _statuses(self) -> dict[str, dict[str, Any]]:
        """Node -> its status, for the gateways that answer."""
        gateways = self._fleet.gateways
        return self._sessions.each_that_answers(gateways, lambda _, client: client.status())[0]

    def route_rows(self) -> dict[str, list[dict[str, Any]]]:
        """Node -> what it knows of its routes, for the gateways that answer."""
        return {node: document["routes"] for node, document in self._statuses().items()}

    def hop_rows(self) -> dict[str, list[dict[str, Any]]]:
        """As `route_rows`, with the hops of trees."""
        return {
            node: [*document["routes"], *document.get("trees", ())]
            for node, document in self._statuses().items()
        }

    def carries_others(self, submitted: SubmittedTransfer) -> bool:
        """Whether the fleet has another transfer that has not ended."""
        return bool(set(unended_transfers(self._statuses())) - {submitted.transfer_key})

    def report_rows(self, submitted: SubmittedTransfer) -> Iterator[dict[str, Any]]:
        """One row per object, in the order in which they ended."""
        lead = self._lead(submitted)
        offset, complete = 0, False
        while not complete:
            page = lead.report(submitted.transfer_key, offset=offset)
            yield from page["rows"]
            offset, complete = page["next_offset"], page["complete"]

    def log_tails(self, handles: Iterable[GatewayHandle] | None = None) -> dict[str, str]:
        """Node -> the end of its log, for the gateways that answer."""
        asked = self._fleet.gateways if handles is None else handles
        return self._sessions.each_that_answers(asked, lambda _, client: client.log_tail())[0]

    def renew_credentials(self, request: TransferRequest, epoch: int) -> None:
        """Send fresh credentials to the gateways that ask for them; best effort."""
        answers, _ = self._sessions.each_that_answers(self._ends, lambda _, client: client.status())
        for side in ENDS:
            nodes = [
                node
                for node, document in answers.items()
                if side in document.get("needs_credentials", {}).get(request.transfer_key, ())
            ]
            if nodes:
                fresh = self._credentials(request, side)
                sent = 0
                if fresh is not None:
                    sent = self._send_credentials(nodes, request.transfer_key, epoch, side, fresh)
                log.info("sent fresh credentials of the %s to %s", side, counted(sent, "gateway"))

    def _send_credentials(
        self, nodes: Iterable[str], key: str, epoch: int, side: str, fresh: Credentials
    ) -> int:
        """How many gateways have accepted the credentials."""

        def renew(_: GatewayHandle, client: ControlClient) -> None:
            client.renew_credentials(key, epoch=epoch, side=side, credentials=fresh)

        answers, errors = self._sessions.each_that_answers(
            [self._fleet.gateway(node) for node in nodes], renew
        )
        for node, error in errors.items():
            log.warning("%s does not accept fresh credentials: %s", node, error)
        return len(answers)

    # -- the end of a transfer

    def stop(self, submitted: SubmittedTransfer, reason: str, *, goes_on: bool = False) -> None:
        """Have the lead fail the transfer with this reason; uploads and journals stay.

        With `goes_on` only its epoch is over: others that follow it await the next one. Raises
        GatewayUnreachable when the lead does not answer.
        """
        self._lead(submitted).stop(submitted.transfer_key, reason, goes_on=goes_on)

    def cancel(self, submitted: SubmittedTransfer) -> None:
        """Cancel at the lead first, then at the other sources and sinks."""
        self._cancel(submitted.transfer_key, submitted.lead, self._ends)

    def _cancel(self, key: str, lead: str, ends: Iterable[GatewayHandle]) -> None:
        first = [handle for handle in ends if handle.node == lead]
        others = [handle for handle in ends if handle.node != lead]
        for handles in (first, others):
            self._sessions.each_that_answers(handles, lambda _, client: client.cancel(key))

    def cancel_unended(self) -> dict[str, str]:
        """Cancel every transfer that has not ended, before a teardown; node -> end of its log.

        Where the lead does not answer, the other sources and sinks abort the uploads that they
        know. The gateways keep running: only the provisioner ends them, under its lock.
        """
        answers = self._statuses()
        # A gateway that does not answer would delay the others.
        ends = [handle for handle in self._ends if handle.node in answers]
        for key, lead in unended_transfers(answers).items():
            self._cancel(key, lead, ends)
        return self.log_tails([self._fleet.gateway(node) for node in answers])

    def release(self, submitted: SubmittedTransfer, *, journals_in: str | None = None) -> bool:
        """Have sources and sinks forget an ended transfer's stores and credentials; best effort.

        A sink also deletes the journals in the folder `journals_in`; whether one has.
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

    # -- the end of a fleet

    def followers(self, submitted: SubmittedTransfer) -> int:
        """Stop following the transfer; how many other orchestrators follow it.

        0 where the lead does not answer.
        """
        try:
            document = self._lead(submitted).transfer_status(submitted.transfer_key, renew=False)
        except SkyplaneError as error:
            log.info("%s does not report who follows the transfer: %s", submitted.lead, error)
            return 0
        return int(document["followers"])

    def drain_if_idle(self) -> bool:
        """Have an idle fleet accept no new transfer; False if a transfer runs on it."""
        answers = self._statuses()
        rows = (row for document in answers.values() for row in document["leading"].values())
        if any(row["state"] == "running" for row in rows):
            return False
        # A transfer may have begun since.
        drained, _ = self._sessions.each_that_answers(
            self._fleet.sources, lambda _, client: client.drain(unless_leading=True)
        )
        return all(drained.values())


def _newest_journal_epoch(request: TransferRequest, asked: FirstRequests | None) -> int:
    known = None if asked is None else asked.journal_epoch()
    if known is not None:
        return known
    destination = request.job.destination
    with open_location(destination, request.credentials, RetryPolicy()) as store:
        return newest_journal_epoch(store, journal_folder(request.job), request.transfer_key)


def _fleet_lost(error: GatewayUnreachable | GatewayLost) -> FleetLost:
    if isinstance(error, GatewayDraining):
        return FleetLost(f"a gateway of the fleet is ending: {error.message}")
    if isinstance(error, GatewayLost):
        return FleetLost(f"the lead answers, but not all gateways that it needs: {error.message}")
    return FleetLost(f"the fleet is gone, or cannot be reached from here: {error.message}")
