"""Reads the status documents of a fleet's gateways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skyplane_gateway.common.schema import reading
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.recovery.failover_decisions import FleetView, Tenure


@dataclass(frozen=True, slots=True)
class _Led:
    """A gateway's tenure as lead; `is_unacknowledged`: its success was not released since."""

    tenure: Tenure
    is_running: bool
    is_unacknowledged: bool


def view_of(
    fleet: Fleet, documents: Mapping[str, Mapping[str, Any]], transfer_key: str
) -> FleetView:
    """The view of the gateways that have answered, from node -> status.

    An epoch that was used is never used again: gateways that outlived its lead still know its
    chunks, or that it is over. An epoch that was only attached may be used: then the second
    of two concurrent orchestrators joins the first. Raises ConfigurationInvalid.
    """
    led: list[_Led] = []
    next_epoch, newest_epoch, acknowledged_epoch = 1, 0, 0
    with reading("the status of a gateway"):
        for node, document in documents.items():
            row = document["leading"].get(transfer_key)
            attached = document.get("attached", {}).get(transfer_key)
            # A gateway of the previous release has no such field.
            released = document.get("released", {}).get(transfer_key)
            if row is not None:
                led.append(_led(node, row, attached))
                next_epoch = max(next_epoch, row["epoch"] + 1)
                newest_epoch = max(newest_epoch, row["epoch"])
            if attached is not None:
                next_epoch = max(next_epoch, attached["epoch"] + bool(attached["is_used"]))
                newest_epoch = max(newest_epoch, attached["epoch"])
            if released is not None:
                next_epoch = max(next_epoch, released["epoch"] + 1)
                newest_epoch = max(newest_epoch, released["epoch"])
                acknowledged_epoch = max(acknowledged_epoch, released["heard"])
    running = [row.tenure for row in led if row.is_running]
    newest = max(led, key=lambda row: row.tenure.epoch, default=None)
    return FleetView(
        sources=tuple(h.node for h in fleet.sources if h.node in documents),
        sinks=tuple(h.node for h in fleet.sinks if h.node in documents),
        newest=newest.tenure if newest is not None else None,
        running=max(running, key=lambda tenure: tenure.epoch, default=None),
        next_epoch=next_epoch,
        unacknowledged=(newest.tenure if newest is not None and newest.is_unacknowledged else None),
        newest_epoch=newest_epoch,
        acknowledged_epoch=acknowledged_epoch,
    )


def _led(node: str, row: Mapping[str, Any], attached: Mapping[str, Any] | None) -> _Led:
    is_attached = attached is not None and attached["epoch"] == row["epoch"]
    state = row["state"]
    return _Led(
        Tenure(node, row["epoch"]), state == "running", state == "succeeded" and is_attached
    )


def unended_transfers(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Transfer key -> lead (empty where it does not answer) of all transfers without an end.

    Includes attached transfers. Raises ConfigurationInvalid for a document that is not valid.
    """
    found: dict[str, str] = {}
    ended_epochs: dict[str, int] = {}
    with reading("the status of a gateway"):
        for node, document in documents.items():
            for key, row in document["leading"].items():
                if row["state"] == "running":
                    found[key] = node
                else:
                    ended_epochs[key] = max(ended_epochs.get(key, 0), row["epoch"])
        for document in documents.values():
            for key, row in document.get("attached", {}).items():
                if row["epoch"] > ended_epochs.get(key, 0):
                    found.setdefault(key, "")
    return found
