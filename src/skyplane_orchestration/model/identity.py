"""The identity of a run, and its fleet and transfer keys.

Both keys are hashes, so that every worker of the run computes the same ones: a retry finds
the fleet of the first try, and teardown finds what provision left behind. Both contain the
run; neither contains a try number.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.common.schema import check
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location

#: The deployment of an installation that nobody has named.
DEFAULT_DEPLOYMENT: Final = "local"

#: Hex characters of a key: 128 bits.
_KEY_CHARACTERS: Final = 32


def lacks_own_name(deployment: str) -> str:
    """Why a deployment cannot have fleets in an account of a cloud; empty if it can."""
    if deployment != DEFAULT_DEPLOYMENT:
        return ""
    return (
        f"deployment is {deployment!r}, as in every installation that has no name; name this one"
        " (prod-eu), or the sweep of another one that shares the account ends its instances"
    )


def _digest(kind: str, **parts: object) -> str:
    text = json.dumps({"kind": kind, **parts}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_CHARACTERS]


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """One run of one DAG, asset or command.

    Args:
        deployment: id of the installation (`prod-eu`), so that staging's sweep does not remove
            production's fleets.
        owner: DAG id, asset key or command.
        run: run id.
        group: task group or other part within the run.
        map_index: index of a mapped task; -1 for none.
        shared: name under which several owners share one fleet; replaces group and map index.
        may_be_repeated: False for a command, whose run id no later one has. Not part of the keys.
    """

    deployment: str
    owner: str
    run: str
    group: str = ""
    map_index: int = -1
    shared: str = ""
    may_be_repeated: bool = True

    def __post_init__(self) -> None:
        check(self)
        for name in ("deployment", "owner", "run"):
            if not getattr(self, name):
                raise ConfigurationInvalid(f"a run identity needs a {name}")

    def fleet_key(self, generation: int = 0) -> str:
        """32 hex characters; `generation` rises when a fleet is rebuilt."""
        group, index = (self.shared, -1) if self.shared else (self.group, self.map_index)
        return _digest(
            "fleet",
            deployment=self.deployment,
            owner=self.owner,
            run=self.run,
            group=group,
            shared=bool(self.shared),
            map_index=index,
            generation=generation,
        )

    def transfer_key(self, source: Location, destination: Location, rule: str) -> str:
        """32 hex characters, independent of the fleet that carries the transfer."""
        return _digest(
            "transfer",
            deployment=self.deployment,
            owner=self.owner,
            run=self.run,
            group=self.group,
            map_index=self.map_index,
            source=[source.url, source.endpoint_url],
            destination=[destination.url, destination.endpoint_url],
            rule=rule,
        )
