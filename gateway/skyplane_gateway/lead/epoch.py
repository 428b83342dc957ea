"""One epoch of a transfer: takes over from earlier epochs, and builds what copies objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skyplane_gateway.common.errors import JournalUnreadable
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.journal.document import Journal, folder_of_destination
from skyplane_gateway.journal.earlier_epochs import EarlierEpochs, seal_earlier_epochs
from skyplane_gateway.journal.totals import Totals
from skyplane_gateway.journal.writer import JournalWriter
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.lead.multipart import MultipartCopier
from skyplane_gateway.lead.pipeline import Pipeline
from skyplane_gateway.lead.resume import Resumer
from skyplane_gateway.lead.resume_rules import DoubtRule, EarlierJournal, keeps_unseen


@dataclass(frozen=True, slots=True)
class Epoch:
    """The parts of one epoch that write the journal or copy objects."""

    journal: JournalWriter
    multipart: MultipartCopier
    resumer: Resumer
    pipeline: Pipeline
    earlier: Totals


async def take_over(context: TransferContext, identity: Journal) -> EarlierEpochs:
    """Seal the journals of earlier epochs; what they left.

    Raises:
        StaleEpoch: a newer epoch has begun.
        JournalUnreadable: it may name objects that the conflict rule must not keep unseen.
        StoreError, GatewayError: as a sink says.
    """
    spec = context.spec
    if identity.epoch == 1:
        # The first write of the journal finds a newer epoch, and another lead of this one.
        return EarlierEpochs(None, ())
    earlier = await seal_earlier_epochs(
        context.sinks.call, _folder_of(spec), identity.transfer_key, identity.epoch, identity.rule
    )
    if earlier.unreadable and keeps_unseen(spec):
        raise JournalUnreadable(
            f"{'; '.join(earlier.unreadable)}; it may name objects that could not be verified, "
            f"and {spec.conflict!r} would keep them. If a newer release wrote it, continue with "
            "that release. Otherwise compare both ends (skyplane-orch verify), remove the "
            "objects of this transfer that differ, delete that journal, and try again"
        )
    return earlier


def build_epoch(
    context: TransferContext,
    identity: Journal,
    earlier: EarlierEpochs,
    totals: Callable[[Totals], Totals],
) -> Epoch:
    """Build the parts of an epoch; `totals` adds its totals to those of earlier epochs."""
    spec, call = context.spec, context.sinks.call
    before = earlier.journal.totals if earlier.journal is not None else Totals()
    journal = JournalWriter(
        call,
        _folder_of(spec),
        identity,
        earlier.journal,
        totals=lambda: totals(before),
        rewrite_s=context.capabilities.rewrite_s,
    )
    multipart = MultipartCopier(context, journal)
    doubt = DoubtRule.of(
        conflict=spec.conflict,
        verify=spec.verify,
        trusts_checksum=context.capabilities.trusts_checksum,
    )
    known = EarlierJournal(earlier.journal, doubt)
    resumer = Resumer(known, call, context.source, journal.arguments(), context.spec.sets)
    first = earlier.journal if earlier.journal is not None else identity
    began_unix_s = first.began_unix_s or context.clock.wall()
    pipeline = Pipeline(context, journal, resumer, multipart, began_unix_s=began_unix_s)
    return Epoch(journal, multipart, resumer, pipeline, before)


def _folder_of(spec: TransferSpec) -> str:
    return folder_of_destination(spec.destination_prefix, recursive=spec.recursive)
