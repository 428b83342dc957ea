"""What must hold of every run, whatever went wrong in it.

The destination equals the source, or what does not is reported with a reason; nothing is
reported as done that is not there with the right bytes; nothing is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.fleet import Gateway

if TYPE_CHECKING:
    from tests.simulation.run import Scene

#: Objects under it are the transfer's own notes, not a user's.
OWN_PREFIX: Final = ".skyplane/"

#: Frames that may wait at a relay: what few links bring in one reading.
_MOST_WAITING_FRAMES: Final = 64


@dataclass(slots=True)
class Claims:
    """What leads entered into their reports, compared with the store at that moment."""

    scene: Scene
    last: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    lies: list[str] = field(default_factory=list)

    def enter(self, state: str, key: str, destination: str, row: Mapping[str, Any]) -> None:
        self.scene.world.note(f"{key}: {state} {row.get('code', '')}")
        self.last[key] = (state, row)
        if state == "copied":
            found = self.scene.destination.content().get(destination)
            proper = self.scene.source.versions.get(key, [])
            users = self.scene.destination.versions.get(destination, [])
            landed = self.scene.destination.landed.get(destination, [])
            # A user may have replaced it since.
            if found not in (*proper, *users) or not any(body in proper for body in landed):
                self.lies.append(f"{key!r} was reported as copied, but is {_shown(found)}")
        elif state == "failed" and not row.get("reason"):
            self.lies.append(f"{key!r} was reported as failed without a reason")


@dataclass(slots=True)
class Inspection:
    """How a run ended and what is wrong with that."""

    state: str = ""
    reason: str = ""
    findings: list[str] = field(default_factory=list)
    open_uploads: dict[str, str] = field(default_factory=dict)
    put_bytes: int = 0


def inspect(scene: Scene, hang: str) -> Inspection:
    """Look at everything that is left of a run."""
    found = Inspection()
    if hang:
        found.findings.append(hang)
    _orchestrator(scene, found)
    _objects(scene, found)
    _uploads(scene, found)
    _processes(scene, found)
    found.findings.extend((*scene.claims.lies, *scene.destination.wrongs, *scene.plane.wrongs))
    found.put_bytes = sum(
        count
        for key, count in scene.destination.put_bytes.items()
        if not key.startswith(OWN_PREFIX)
    )
    return found


def _orchestrator(scene: Scene, found: Inspection) -> None:
    if not scene.orchestrators:
        return
    last = scene.orchestrators[-1]
    found.state = "error"
    if last.result is not None:
        found.state = last.result.state
    if last.error is not None:
        found.reason = f"{last.error.code}: {last.error.message}"
    if found.state != "succeeded" and last.is_over and not found.reason:
        found.findings.append("the transfer ended badly and does not say why")
    if last.crash:
        found.findings.append(f"the client crashed: {last.crash}")


def _objects(scene: Scene, found: Inspection) -> None:
    there = {
        key: body
        for key, body in scene.destination.content().items()
        if not key.startswith(OWN_PREFIX)
    }
    for key, body in there.items():
        proper = [
            *scene.source.versions.get(key, []),
            *scene.destination.versions.get(key, []),
        ]
        if body not in proper and key not in scene.destination.damaged:
            found.findings.append(f"{key!r} at the destination is {_shown(body)}, nobody's bytes")
    for key, (state, _) in scene.claims.last.items():
        versions = scene.source.versions.get(key, [])
        users = scene.destination.versions.get(key, [])
        if state == "copied" and there.get(key) not in (*versions, *users):
            found.findings.append(f"{key!r} was copied, but is {_shown(there.get(key))}")
    if found.state == "succeeded":
        _equal(scene, there, found)


def _equal(scene: Scene, there: Mapping[str, bytes], found: Inspection) -> None:
    """Success means: every object is there, in a version that it had during the run."""
    for key in scene.source.content():
        # What a user has at the destination stays under the rule `skip`, or came later.
        users = scene.destination.versions.get(key, [])
        if there.get(key) not in (*scene.source.versions[key], *users):
            found.findings.append(f"success, but {key!r} is {_shown(there.get(key))}")


def _uploads(scene: Scene, found: Inspection) -> None:
    found.open_uploads = scene.destination.open_uploads()
    keeps_journal = any(key.startswith(OWN_PREFIX) for key in scene.destination.put_bytes)
    has_lost = any(not gateway.has_ended for gateway in _gateways(scene))
    if not found.open_uploads or (has_lost and not keeps_journal):
        # What a killed sink had open, nobody else knows of without a journal.
        return
    if found.state == "succeeded":
        found.findings.append(f"success, but uploads are open: {found.open_uploads}")
    elif not _are_named(scene, found.open_uploads):
        found.findings.append(f"uploads are open and named nowhere: {found.open_uploads}")


def _are_named(scene: Scene, uploads: Mapping[str, str]) -> bool:
    """A journal names each, or its key, or the result warns of it."""
    result = scene.orchestrators[-1].result
    warned = "\n".join(result.warnings) if result is not None else ""
    journals = b"".join(
        body for key, body in scene.destination.content().items() if key.startswith(OWN_PREFIX)
    )
    return all(
        upload_id in warned or upload_id.encode() in journals or f'"{key}"'.encode() in journals
        for upload_id, key in uploads.items()
    )


def _processes(scene: Scene, found: Inspection) -> None:
    fleet = scene.fleet
    for process in scene.world.processes:
        found.findings.extend(f"{process.name}: {text}" for text in process.unhandled)
    for gateway in _gateways(scene):
        if not gateway.has_ended:
            continue
        names = [task.get_name() for task in gateway.process.loop.tasks]
        if names and gateway.process.name not in scene.woken_to_end:
            found.findings.append(f"{gateway.process.name}: tasks are left: {names}")
        if gateway.service.sink.held_bytes:
            found.findings.append(f"{gateway.process.name}: chunks are left in memory")
    if fleet.most_held_bytes > fleet.settings["assembly_mib"] << 20:
        found.findings.append(f"a sink held {fleet.most_held_bytes} bytes")
    if fleet.most_waiting_frames > _MOST_WAITING_FRAMES:
        found.findings.append(f"{fleet.most_waiting_frames} frames waited at a relay")


def _gateways(scene: Scene) -> tuple[Gateway, ...]:
    return (*scene.fleet.gateways.values(), *scene.fleet.former)


def _shown(body: bytes | None) -> str:
    return "missing" if body is None else f"{len(body)} bytes {body[:8].hex()}..."
