"""What the ends of a fleet know of one transfer, from their status documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skyplane_gateway.schema import reading
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.recovery.failover import FleetView, Tenure


@dataclass(frozen=True, slots=True)
class _Led:
    """A tenure as a gateway reports of it.

    `is_unclaimed`: it ended well, and the ends have not been released since.
    """

    tenure: Tenure
    is_running: bool
    is_unclaimed: bool


def view_of(
    fleet: Fleet, documents: Mapping[str, Mapping[str, Any]], transfer_key: str
) -> FleetView:
    """The view of the ends that have answered.

    An epoch in which anything was done is never used again: gateways that outlived its lead
    still know its chunks, or that it is over. One that was only prepared is, so that of two
    orchestrators at once the second joins the first.

    Args:
        documents: node -> its status.

    Raises:
        ConfigurationInvalid: a document is none.
    """
    led: list[_Led] = []
    epoch, known, heard = 1, 0, 0
    with reading("the status of a gateway"):
        for node, document in documents.items():
            row = document["leading"].get(transfer_key)
            attached = document.get("attached", {}).get(transfer_key)
            # A gateway of the release before does not tell.
            released = document.get("released", {}).get(transfer_key)
            if row is not None:
                led.append(_led(node, row, attached))
                epoch, known = max(epoch, row["epoch"] + 1), max(known, row["epoch"])
            if attached is not None:
                epoch = max(epoch, attached["epoch"] + bool(attached["is_used"]))
                known = max(known, attached["epoch"])
            if released is not None:
                epoch, known = max(epoch, released["epoch"] + 1), max(known, released["epoch"])
                heard = max(heard, released["heard"])
    running = [row.tenure for row in led if row.is_running]
    newest = max(led, key=lambda row: row.tenure.epoch, default=None)
    return FleetView(
        sources=tuple(h.node for h in fleet.sources if h.node in documents),
        sinks=tuple(h.node for h in fleet.sinks if h.node in documents),
        newest=newest.tenure if newest is not None else None,
        running=max(running, key=lambda tenure: tenure.epoch, default=None),
        epoch=epoch,
        unclaimed=newest.tenure if newest is not None and newest.is_unclaimed else None,
        known=known,
        heard=heard,
    )


def _led(node: str, row: Mapping[str, Any], attached: Mapping[str, Any] | None) -> _Led:
    is_held = attached is not None and attached["epoch"] == row["epoch"]
    state = row["state"]
    return _Led(Tenure(node, row["epoch"]), state == "running", state == "succeeded" and is_held)


def unended(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Transfers that run, or that are attached and have not ended as far as anybody knows:
    key -> lead, empty where it does not answer.

    Args:
        documents: node -> its status.

    Raises:
        ConfigurationInvalid: a document is none.
    """
    found: dict[str, str] = {}
    over: dict[str, int] = {}
    with reading("the status of a gateway"):
        for node, document in documents.items():
            for key, row in document["leading"].items():
                if row["state"] == "running":
                    found[key] = node
                else:
                    over[key] = max(over.get(key, 0), row["epoch"])
        for document in documents.values():
            for key, row in document.get("attached", {}).items():
                if row["epoch"] > over.get(key, 0):
                    found.setdefault(key, "")
    return found
