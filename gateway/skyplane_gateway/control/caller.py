"""Who calls the control API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from skyplane_gateway.common.errors import NotAuthorised
from skyplane_gateway.common.identifiers import node_of_uri, orchestrator_uri


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request: the gateway `node`, or the orchestrator."""

    node: str = ""

    @property
    def is_orchestrator(self) -> bool:
        return not self.node


ORCHESTRATOR: Final = Caller()


def caller_of(certificate: dict[str, Any] | None, fleet_key: str) -> Caller:
    """The caller named by its certificate of this fleet. Raises NotAuthorised otherwise."""
    names = [v for kind, v in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]
    if orchestrator_uri(fleet_key) in names:
        return Caller()
    for name in names:
        node = node_of_uri(fleet_key, name)
        if node:
            return Caller(node=node)
    raise NotAuthorised("the certificate does not belong to this fleet")
