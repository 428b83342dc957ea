"""Log lines of orchestrator tasks: fleets, transfers, failed objects, teardowns, sweeps."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from skyplane_orchestration.formatting import counted, duration, size, throughput, usd
from skyplane_orchestration.model.fleet import where_gateways_run
from skyplane_orchestration.transfer.progress_log import ProgressLog

if TYPE_CHECKING:
    from skyplane_orchestration.errors import TooManyFleets
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.model.result import TransferResult
    from skyplane_orchestration.model.sweep_report import SweepReport
    from skyplane_orchestration.provision.provisioner import TeardownReport
    from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer
    from skyplane_orchestration.transfer.fleet_slot_wait import FleetWait
    from skyplane_orchestration.transfer.run_options import RunArguments

#: Failed objects and swept uploads in a log; the manifest and the report have all.
_MAX_ROWS: Final = 20

#: Lines of each gateway's log.
_MAX_LOG_LINES: Final = 40


#: Looks at the deployment's fleets for one line in the log.
_LOOKS_PER_LINE: Final = 4


class TaskLogger(Protocol):
    """A logger of Airflow or Dagster."""

    def info(self, message: str, /, *args: Any) -> Any: ...

    def warning(self, message: str, /, *args: Any) -> Any: ...

    def error(self, message: str, /, *args: Any) -> Any: ...

    def log(self, level: int, message: str, /, *args: Any) -> Any: ...


class RunLog:
    """Logs what a run does, and waits while the deployment has too many fleets.

    Attributes:
        fleets: gets each fleet that the run uses.
        plans: transfer key -> the plan of the fleet that it was submitted to.
    """

    def __init__(self, log: TaskLogger, fleets: list[Fleet]) -> None:
        self.fleets = fleets
        self.plans: dict[str, TransferPlan] = {}
        self.on_status = ProgressLog(log.info)
        self._log = log

    def on_fleet(self, fleet: Fleet) -> None:
        self.fleets.append(fleet)
        log_fleet(self._log, fleet)

    def on_submitted(self, fleet: Fleet, submitted: SubmittedTransfer) -> None:
        self.fleets.append(fleet)
        self.plans[submitted.transfer_key] = fleet.plan
        verb = "joined" if submitted.joined else "submitted"
        self._log.info("%s transfer %s at %s", verb, submitted.transfer_key, submitted.lead)

    def arguments(self, manifest: str | None) -> RunArguments:
        """What the verbs that run a job take."""
        return {
            "manifest": manifest,
            "on_fleet": self.on_fleet,
            "on_submitted": self.on_submitted,
            "on_status": self.on_status,
            "on_full": partial(log_full, self._log),
        }


def log_fleet(log: TaskLogger, fleet: Fleet) -> None:
    if not fleet.gateways:
        log.info("there is nothing to copy: no gateways are started")
        return
    log.info(
        "fleet %s: %s up in %.1f s; %s",
        fleet.key,
        fleet.size,
        fleet.provision_s,
        where_gateways_run(fleet.provisioner),
    )
    for refused in fleet.plan.refused:
        log.warning("%s", refused.warning)
    if fleet.plan.refused:
        log.warning("the plan is now %s", fleet.plan.in_words)


def log_full(log: TaskLogger, error: TooManyFleets, wait: FleetWait) -> None:
    """Which fleets a run waits for: at the first look, and about every 20 minutes."""
    if wait.looks % _LOOKS_PER_LINE == 0:
        waits = f"this task has waited for {duration(wait.waited_s)}" if wait.looks else "waiting"
        log.warning("%s: %s", waits, error)


def result_lines(result: TransferResult) -> Iterator[str]:
    """What came of a transfer, without its failures and warnings."""
    if result.used_gateways:
        yield from _copied(result)
    else:
        unchanged = f"{counted(result.objects, 'object')} unchanged; no gateways were needed"
        yield f"nothing to copy: {unchanged} ({duration(result.seconds)})"
    for count, where in ((result.moved, "source"), (result.deleted, "destination")):
        if count:
            yield f"{counted(count, 'object')} deleted at the {where}"


def _copied(result: TransferResult) -> Iterator[str]:
    earlier = f", {result.copied_earlier} copied earlier" if result.copied_earlier else ""
    unfinished = f", {result.unfinished} unfinished" if result.unfinished else ""
    estimate = result.estimated_usd
    beside = "" if estimate is None else f", estimated {usd(estimate)}"
    yield (
        f"{result.state}: {result.copied} of {result.objects} objects copied"
        f" ({size(result.copied_bytes)}{earlier}),"
        f" {result.skipped} skipped, {result.failed} failed{unfinished}"
    )
    yield (
        f"{duration(result.seconds)}, {throughput(result.goodput_gbps)}"
        f" (planned {throughput(result.planned_gbps)}),"
        f" cost {usd(result.cost.total_usd)} at the plan's prices{beside}"
    )
    yield where_gateways_run(result.gateways)
    if result.server_side:
        yield (
            f"copied by the store itself: {counted(result.server_side, 'object')}"
            f" ({size(result.server_side_bytes)})"
        )
    if result.unchecked:
        unchecked = counted(result.unchecked, "object")
        yield f"{unchecked} without a checksum of the source to compare with"
    if result.encrypted:
        yield "objects were encrypted from source to sink (AES-256-GCM)"
    own = result.this_try
    if own.seconds < result.seconds:
        yield (
            f"this try: {counted(own.copied, 'object')} ({size(own.copied_bytes)}) in"
            f" {duration(own.seconds)}, cost {usd(own.cost.total_usd)}"
        )


def log_result(log: TaskLogger, result: TransferResult) -> None:
    """The result of a transfer without failures, and its warnings."""
    for line in result_lines(result):
        log.info("%s", line)
    for warning in result.warnings:
        log.warning("%s", warning)


def log_failures(log: TaskLogger, result: TransferResult) -> None:
    """The first failed objects, and the number of others."""
    for failure in result.failures[:_MAX_ROWS]:
        log.error("%s: %s (%s)", failure.source, failure.reason, failure.code)
    if result.failed > _MAX_ROWS:
        log.error("and %d more", result.failed - _MAX_ROWS)
    if result.unfinished:
        log.error("the transfer ended before it copied %s", counted(result.unfinished, "object"))


def log_teardown(log: TaskLogger, report: TeardownReport, level: int = logging.INFO) -> None:
    """The number of ended gateways, and the ends of their logs at `level`."""
    for node, tail in sorted(report.log_tails.items()):
        lines = tail.splitlines()[-_MAX_LOG_LINES:]
        log.log(level, "end of the log of %s:\n%s", node, "\n".join(lines))
    cost = report.instance_usd
    spent = "" if cost is None else f"; its instances have cost {usd(cost)} since their launch"
    log.info("%s ended%s", counted(len(report.stopped), "gateway"), spent)


def log_sweep(log: TaskLogger, report: SweepReport) -> None:
    """The removed fleets, journals and uploads, and an error for each that is left."""
    for fleet in report.orphans:
        log.info("fleet %s: %s", fleet.key, fleet.error or fleet.reason)
    for place in report.places:
        for row in place.transfers:
            log.info(
                "%s: journals of transfer %s in %s, %s %s",
                row.outcome,
                row.transfer_key,
                row.folder,
                counted(len(row.uploads), "upload"),
                row.reason,
            )
        for upload in place.uploads[:_MAX_ROWS]:
            log.info("%s: upload of %s %s", upload.outcome, upload.url, upload.reason)
    log.info("%s", report.summary)
    for line in report.left:
        log.error("still there: %s", line)
