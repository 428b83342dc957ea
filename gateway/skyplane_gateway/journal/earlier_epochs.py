"""What earlier epochs of a transfer left in their journals, for the lead of the next one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from skyplane_gateway.journal.document import Journal, LostRow, UploadRow

#: Runs a verb at a sink that answers.
CallSink = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class EarlierEpochs:
    """What the journals of earlier epochs say.

    Attributes:
        journal: of the newest epoch that had this rule. None where there is none, or where a
            newer journal cannot be read: it may contradict.
        abandoned: uploads that this transfer does not continue, to be aborted. Older journals
            or journals of another rule name them.
        lost: requests without an answer whose uploads nobody has looked for yet.
        unreadable: what is wrong with each journal that cannot be read.
    """

    journal: Journal | None
    abandoned: tuple[UploadRow, ...]
    lost: tuple[LostRow, ...] = ()
    unreadable: tuple[str, ...] = ()


async def seal_earlier_epochs(
    call: CallSink, folder: str, transfer_key: str, epoch: int, rule: str
) -> EarlierEpochs:
    """Read the journals of earlier epochs, and seal them: their leads write no more.

    Raises:
        StaleEpoch: a newer epoch has begun.
        StoreError, GatewayError: as the sink says.
    """
    answer = await call(
        "read_journals",
        {"folder": folder, "transfer_key": transfer_key, "seal_before": epoch, "rule": rule},
    )
    unreadable = {int(number): str(what) for number, what in answer["unreadable"].items()}
    return combine([Journal.from_dict(row) for row in answer["journals"]], rule, unreadable)


def combine(
    journals: Sequence[Journal], rule: str, unreadable: Mapping[int, str] | None = None
) -> EarlierEpochs:
    """What these journals, oldest epoch first, leave to a lead of that rule."""
    newest = next((row for row in reversed(journals) if row.rule == rule), None)
    # The writer of the newest journal had read the older ones, or its rule keeps nothing unseen.
    known = newest.epoch if newest is not None else -1
    missing = {epoch: what for epoch, what in (unreadable or {}).items() if epoch > known}
    if missing:
        newest = None
    continued = {row.key: row for row in newest.uploads} if newest is not None else {}
    ids = {(row.key, row.upload_id) for row in continued.values()}
    rows = [row for journal in journals for row in journal.uploads]
    abandoned = {
        (row.key, row.upload_id): row
        for row in rows
        if row.upload_id is not None and (row.key, row.upload_id) not in ids
    }
    # The intent of a continued key is looked for when the key is resumed.
    intended = {row.key: row for row in rows if row.upload_id is None and row.key not in continued}
    # The newest journal of the rule holds what is left of older ones.
    lost = {
        row: None
        for journal in journals
        if newest is None or journal.epoch >= newest.epoch
        for row in journal.lost
    }
    if newest is not None:
        newest = replace(newest, lost=tuple(lost))
    problems = tuple(missing[epoch] for epoch in sorted(missing))
    return EarlierEpochs(newest, (*abandoned.values(), *intended.values()), tuple(lost), problems)
