"""One epoch of a transfer: takes over from earlier epochs, and builds what copies objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skyplane_gateway.clock import Clock
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.errors import JournalUnreadable
from skyplane_gateway.journal.document import Journal, folder_of_destination
from skyplane_gateway.journal.earlier_epochs import EarlierEpochs, seal_earlier_epochs
from skyplane_gateway.journal.totals import Totals
from skyplane_gateway.journal.writer import JournalWriter
from skyplane_gateway.lead.copier import Copier
from skyplane_gateway.lead.delivery import Delivery
from skyplane_gateway.lead.multipart import MultipartCopier
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.lead.pipeline import Pipeline
from skyplane_gateway.lead.recorder import Recorder
from skyplane_gateway.lead.resume import Resumer
from skyplane_gateway.lead.resume_rules import DoubtRule, EarlierJournal, keeps_unseen
from skyplane_gateway.lead.retry import Retries
from skyplane_gateway.lead.sink_pool import SinkPool
from skyplane_gateway.lead.source_store import SourceStore
from skyplane_gateway.objects import StoreCapabilities


@dataclass(frozen=True, slots=True)
class Channels:
    """How a lead reaches both ends of a transfer.

    Attributes:
        capabilities: of the destination.
    """

    source: SourceStore
    sinks: SinkPool
    delivery: Delivery
    capabilities: StoreCapabilities


@dataclass(frozen=True, slots=True)
class Epoch:
    """The parts of one epoch that write the journal or copy objects.

    Attributes:
        earlier: totals of the epochs before.
    """

    journal: JournalWriter
    multipart: MultipartCopier
    resumer: Resumer
    pipeline: Pipeline
    earlier: Totals


async def take_over(spec: TransferSpec, identity: Journal, sinks: SinkPool) -> EarlierEpochs:
    """Seal the journals of earlier epochs; what they left.

    Args:
        identity: of this epoch's journal.

    Raises:
        StaleEpoch: a newer epoch has begun.
        JournalUnreadable: it may name objects that the conflict rule must not keep unseen.
        StoreError, GatewayError: as a sink says.
    """
    left = await seal_earlier_epochs(
        sinks.call, _folder_of(spec), identity.transfer_key, identity.epoch, identity.rule
    )
    if left.unreadable and keeps_unseen(spec):
        raise JournalUnreadable(
            f"{'; '.join(left.unreadable)}; it may name objects that could not be verified, "
            f"and {spec.conflict!r} would keep them: if a newer release wrote it, continue with "
            "that release; else compare both ends (skyplane-orch verify), remove at the "
            "destination what differs and is nobody else's, delete that journal, try again"
        )
    return left


def build_epoch(
    spec: TransferSpec,
    identity: Journal,
    left: EarlierEpochs,
    channels: Channels,
    *,
    report: Report,
    totals: Callable[[Totals], Totals],
    retries: Retries,
    clock: Clock,
) -> Epoch:
    """Build the parts of an epoch.

    Args:
        left: by earlier epochs.
        totals: adds this epoch's totals to those of earlier epochs.
    """
    earlier = left.journal.totals if left.journal is not None else Totals()
    journal = JournalWriter(
        channels.sinks.call,
        _folder_of(spec),
        identity,
        left.journal,
        totals=lambda: totals(earlier),
    )
    multipart = MultipartCopier(
        delivery=channels.delivery,
        source=channels.source,
        sinks=channels.sinks,
        journal=journal,
        capabilities=channels.capabilities,
        chunk_bytes=spec.chunk_bytes,
        strict_metadata=spec.strict_metadata,
        retries=retries,
        clock=clock,
    )
    recorder = Recorder(report, journal.state, clock)
    copier = Copier(
        delivery=channels.delivery,
        multipart=multipart,
        source=channels.source,
        journal=journal,
        recorder=recorder,
        retries=retries,
        chunk_bytes=spec.chunk_bytes,
        journal_first=spec.conflict == "fail",
        strict_metadata=spec.strict_metadata,
    )
    doubt = DoubtRule.of(
        conflict=spec.conflict,
        verify=spec.verify,
        trusts_checksum=channels.capabilities.trusts_checksum,
    )
    resumer = Resumer(
        EarlierJournal(left.journal, doubt), channels.sinks.call, channels.source, journal.place()
    )
    pipeline = Pipeline(
        spec,
        source=channels.source,
        sinks=channels.sinks,
        resumer=resumer,
        copier=copier,
        multipart=multipart,
        journal=journal,
        recorder=recorder,
        counters=report.counters,
    )
    return Epoch(journal, multipart, resumer, pipeline, earlier)


def _folder_of(spec: TransferSpec) -> str:
    return folder_of_destination(spec.destination_prefix, recursive=spec.recursive)
