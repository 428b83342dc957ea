"""Scenarios of the emulated wide area, as TOML files; docs/how-to/try-a-plan.md has the format."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from skyplane_gateway.common.schema import decode
from skyplane_orchestration.model.job import Limits

FOLDER: Final = Path(__file__).with_name("scenarios")


@dataclass(frozen=True, slots=True)
class Line:
    """What a line really is, where that differs from the grid; one direction.

    Args:
        rate_share: its rate, as a share of the grid's.
        loss: share of packets that are lost.
    """

    src: str
    dst: str
    rate_share: float = 1.0
    loss: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """What happens in mid-transfer.

    Args:
        at_share: share of the bytes that have arrived by then.
        kill: region whose gateways are killed.
        src, dst, rate_share: direction that keeps this share of its rate.
    """

    at_share: float
    kill: str = ""
    src: str = ""
    dst: str = ""
    rate_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One emulated area and the transfers over it.

    Args:
        about: what it shows, in one sentence.
        grid: name or directory of a grid; a relative directory is beside the scenario.
        regions: those that exist; empty for all of the grid.
        scale: the rates of the grid are divided by it.
        transfers: pairs of source and destination.
        objective: as in a plan document.
        seconds: planned time of each transfer, which decides its volume.
        object_mib: size of each object.
        max_relays: most relay regions of a plan.
        instances: most instances per region.
        probe: `always` or `never`.
        store_rtt_ms: between a gateway and the store of its region.
        lines, events: see there.
        against_direct: each transfer also runs over the direct path alone.
        beside_iperf3: after each transfer iperf3 sends as much over as many connections.
        mtu: of all lines.
    """

    about: str
    grid: str
    transfers: tuple[tuple[str, str], ...]
    objective: Mapping[str, Any]
    regions: tuple[str, ...] = ()
    scale: float = 1.0
    seconds: float = 20.0
    object_mib: int = 16
    max_relays: int | None = None
    instances: int = 1
    probe: Literal["always", "never"] = "never"
    store_rtt_ms: float = 0.0
    lines: tuple[Line, ...] = ()
    events: tuple[Event, ...] = ()
    against_direct: bool = False
    beside_iperf3: bool = False
    mtu: int = 9000

    @property
    def limits(self) -> Limits:
        return Limits(instance_limit=self.instances, max_relays=self.max_relays)


def load(name_or_file: str) -> Scenario:
    """One of `FOLDER` by its name, or any file. Raises ConfigurationInvalid for a bad one."""
    named = FOLDER / f"{name_or_file}.toml"
    file = named if named.is_file() else Path(name_or_file)
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    scenario = decode(Scenario, document, f"scenario {file}")
    beside = file.parent / scenario.grid
    return replace(scenario, grid=str(beside)) if beside.is_dir() else scenario


def names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.toml"))
