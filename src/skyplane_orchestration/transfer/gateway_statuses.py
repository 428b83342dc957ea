"""Reads the status documents of a fleet's gateways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyplane_gateway.common.schema import reading
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.recovery.failover_decisions import FleetView, Tenure


def view_of(
    fleet: Fleet, documents: Mapping[str, Mapping[str, Any]], transfer_key: str
) -> FleetView:
    """The view of the gateways that have answered, from node -> status.

    An epoch that was used is never used again: gateways that outlived its lead still know its
    chunks, or that it is over. An epoch that was only attached may be used: then the second
    of two concurrent orchestrators joins the first. Raises ConfigurationInvalid.
    """
    led: list[Tenure] = []
    running: list[Tenure] = []
    unacknowledged: list[Tenure] = []
    next_epoch, newest_epoch, acknowledged_epoch = 1, 0, 0
    with reading("the status of a gateway"):
        for node, document in documents.items():
            row = document["leading"].get(transfer_key)
            attached = document["attached"].get(transfer_key)
            released = document["released"].get(transfer_key)
            if row is not None:
                led.append(tenure := Tenure(node, row["epoch"]))
                if row["state"] == "running":
                    running.append(tenure)
                # Its success was not released since.
                if row["state"] == "succeeded" and (attached or {}).get("epoch") == row["epoch"]:
                    unacknowledged.append(tenure)
                next_epoch = max(next_epoch, row["epoch"] + 1)
                newest_epoch = max(newest_epoch, row["epoch"])
            if attached is not None:
                next_epoch = max(next_epoch, attached["epoch"] + bool(attached["is_used"]))
                newest_epoch = max(newest_epoch, attached["epoch"])
            if released is not None:
                next_epoch = max(next_epoch, released["epoch"] + 1)
                newest_epoch = max(newest_epoch, released["epoch"])
                acknowledged_epoch = max(acknowledged_epoch, released["heard"])
    newest = max(led, key=lambda tenure: tenure.epoch, default=None)
    return FleetView(
        sources=tuple(h.node for h in fleet.sources if h.node in documents),
        sinks=tuple(h.node for h in fleet.sinks if h.node in documents),
        newest=newest,
        running=max(running, key=lambda tenure: tenure.epoch, default=None),
        next_epoch=next_epoch,
        unacknowledged=newest if newest in unacknowledged else None,
        newest_epoch=newest_epoch,
        acknowledged_epoch=acknowledged_epoch,
        has_other_routes=_has_other_routes(fleet, documents),
    )


def _has_other_routes(fleet: Fleet, documents: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the fleet was planned again since this document of it was written."""
    known = {route["number"]: route["nodes"] for route in fleet.routes}
    rows = (row for document in documents.values() for row in document.get("routes", ()))
    # A gateway of the previous release does not name the nodes.
    return any("nodes" in row and row["nodes"] != known.get(row["number"]) for row in rows)


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
            for key, row in document["attached"].items():
                if row["epoch"] > ended_epochs.get(key, 0):
                    found.setdefault(key, "")
    return found
