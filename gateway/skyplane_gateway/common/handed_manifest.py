"""A manifest that lies elsewhere, as the orchestrator hands it to a lead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HandedManifest:
    """Gateways have no credentials for the place of the manifest.

    Attributes:
        place, kind: of the copies; see `manifest.document.Elsewhere`.
        files: name -> content in base64: the pointer and its indexes; empty where there are none.
        trouble: why they were not handed over; empty where they were.
    """

    place: str
    kind: str
    files: Mapping[str, str]
    trouble: str = ""
