"""What must hold of every run, whatever went wrong in it.

The destination equals the source, or what does not is reported with a reason; nothing is
reported as done that is not there with the right bytes and attributes; nothing is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.simulation.buckets import OWN_PREFIX
from tests.simulation.fleet import Gateway
from tests.simulation.rules import shown
from tests.simulation.schedule import Call, Cut, Kill, Schedule, Stop, Store, Terminate

from skyplane_gateway.common.errors import JournalUnreadable
from skyplane_gateway.selection.selection_rule import KEEPING_RULES

if TYPE_CHECKING:
    from tests.simulation.run import Scene

#: Refusals of a store in a row that a lead bears.
_PATIENCE: Final = 3

#: Frames that may wait at a relay: what few links bring in one reading.
_MOST_WAITING_FRAMES: Final = 64


@dataclass(slots=True)
class Inspection:
    """How a run ended and what is wrong with that.

    Attributes:
        then_state, then_reason: of the second run; empty when there was none.
        copied_parts: requests to the destination to copy a part itself, in the first run.
        ended_s: when the first run had ended.
        most_held_bytes, most_waiting_frames: at any sink, at any relay.
    """

    state: str = ""
    reason: str = ""
    then_state: str = ""
    then_reason: str = ""
    findings: list[str] = field(default_factory=list)
    open_uploads: dict[str, str] = field(default_factory=dict)
    put_bytes: int = 0
    copied_parts: int = 0
    ended_s: float = 0.0
    most_held_bytes: int = 0
    most_waiting_frames: int = 0

    def look_at_first(self, scene: Scene) -> None:
        """The first run has ended."""
        self.state, self.reason = _ended(scene, self.findings)
        self.open_uploads = scene.destination.open_uploads()
        self.put_bytes = sum(
            count
            for key, count in scene.destination.put_bytes.items()
            if not key.startswith(OWN_PREFIX)
        )
        self.copied_parts = scene.destination.requests["copy_part"]
        self.findings += [*_objects(scene), *_left(scene, self.state)]
        if self.state == "succeeded":
            self.findings += [*_equal(scene), *_moved(scene)]

    def look_again(self, scene: Scene) -> None:
        """What was late has come by now; all that was said still holds."""
        self.findings += _objects(scene)
        if self.state == "succeeded":
            self.findings += _equal(scene)

    def look_at_second(self, scene: Scene, *, has_handle: bool) -> None:
        """The second run, in which nothing goes wrong, has ended: it must be whole."""
        findings: list[str] = []
        self.then_state, self.then_reason = _ended(scene, findings)
        findings += _objects(scene)
        cannot_begin = _is_blind(scene)
        if not cannot_begin:
            findings += _whole(scene, self.then_state, has_handle)
        refused = cannot_begin or (_failed(scene) and _failed(scene) <= _unproved(scene))
        if self.then_state != "succeeded" and scene.schedule.conflict != "fail" and not refused:
            findings.append(f"ended {self.then_state}: {self.then_reason}")
        findings += _left(scene, self.then_state, is_calm=True)
        self.findings += [f"second run: {text}" for text in findings]

    def look_at_processes(self, scene: Scene) -> None:
        """The fleet was taken down."""
        self.findings += _processes(scene)
        self.most_held_bytes = scene.fleet.most_held_bytes
        self.most_waiting_frames = scene.fleet.most_waiting_frames
        for wrongs in (
            scene.claims.lies,
            scene.source.wrongs,
            scene.destination.wrongs,
            scene.plane.wrongs,
        ):
            self.findings += wrongs


def _ended(scene: Scene, findings: list[str]) -> tuple[str, str]:
    """State and reason of the orchestrator that ran last."""
    if not scene.orchestrators:
        return "", ""
    last = scene.orchestrators[-1]
    state = "error" if last.result is None else last.result.state
    reason = "" if last.error is None else f"{last.error.code}: {last.error.message}"
    if state != "succeeded" and last.is_over and not reason:
        findings.append("the transfer ended badly and does not say why")
    if last.crash:
        findings.append(f"the client crashed: {last.crash}")
    return state, reason


# -- objects


def _objects(scene: Scene) -> list[str]:
    """Nothing is there that nobody has given, and what was copied stays there."""
    source, destination = scene.source, scene.destination
    there = destination.data()
    found = [
        f"{key!r} at the destination is {shown(content)}, nobody's"
        for key, content in there.items()
        if not source.is_users(key, content)
        and not destination.is_users(key, content)
        and key not in destination.damaged
    ]
    for key, (state, _) in scene.claims.last.items():
        content = there.get(key)
        is_users = destination.is_users(key, content) or key in destination.removed
        # A later epoch may have had to write it again, to a store that spoils what it gets.
        was_spoilt = content is None and key in destination.damaged
        is_right = source.is_users(key, content) or is_users or was_spoilt
        if state == "copied" and not is_right:
            found.append(f"{key!r} was copied, but is {shown(content)}")
    return found + [
        f"the manifest has {key!r}, which is not there"
        for key in destination.recorded().keys() - there.keys() - destination.removed
    ]


def _equal(scene: Scene) -> list[str]:
    """Success means: every object is there, in a version that it had during the run."""
    there = scene.destination.data()
    return [
        f"success, but {key!r} is {shown(there.get(key))}"
        for key in scene.source.data()
        if not scene.source.is_users(key, there.get(key))
        and not scene.rules.stays(key, there.get(key))
        and key not in scene.destination.removed
        and not scene.source.was_absent(key)
    ]


def _whole(scene: Scene, state: str, has_handle: bool) -> list[str]:
    """Nobody writes any more: every object is there as it is at the source now; or as it was
    in the transfer that the run has joined, and whose success it was the first to hear of."""
    failed = _failed(scene)
    # What a journal names is ours, for as long as there is one.
    has_journal = not scene.destination.has_forgotten and not _are_journals_spoilt(scene)
    is_known = has_handle and has_journal
    found = []
    for key, content in scene.source.data().items():
        there = scene.destination.get(key)
        if there == content:
            # Under the rule `fail` it would count as a stranger's, were it not known as ours.
            is_ours = not scene.destination.is_users(key, there)
            if key in failed and is_ours and is_known:
                found.append(f"{key!r} is there, but was refused")
            continue
        refused = key in failed and (scene.schedule.conflict == "fail" or key in _unproved(scene))
        may_be_older = scene.orchestrators[-1].has_only_joined or scene.rules.passes_over(key)
        older = scene.source.is_users(key, there) and may_be_older
        if not (refused or older or scene.rules.stays(key, there)):
            found.append(f"{key!r} is {shown(there)}, not {shown(content)}")
    return found


def _failed(scene: Scene) -> set[str]:
    return {key for key, (state, _) in scene.claims.last.items() if state == "failed"}


def _unproved(scene: Scene) -> set[str]:
    """Objects that the store has spoilt, that no try could verify, and that a rule keeps
    since nobody can tell whose they are: not to be written over, nor to be called well."""
    if scene.schedule.conflict not in ("skip", "replace-if-newer"):
        return set()
    there, claims = scene.destination, scene.claims.last
    return {
        key
        for key in _failed(scene) & there.damaged
        if claims[key][1].get("code") == "checksum-mismatch"
        and not there.is_users(key, there.get(key))
    }


def _is_blind(scene: Scene) -> bool:
    """Whether the last run says that it cannot tell what it must not keep, and that is so:
    the store has spoilt the journal, and the rule would keep what the try before left."""
    result = scene.orchestrators[-1].result
    if result is None or result.error_code != JournalUnreadable.code:
        return False
    is_needed = scene.schedule.conflict in KEEPING_RULES and scene.schedule.verify != "none"
    journals, spoilt = scene.destination.journals(), scene.destination.spoilt
    return is_needed and any(
        key in result.error and body == spoilt.get(key) for key, body in journals.items()
    )


def _moved(scene: Scene) -> list[str]:
    """A move leaves no source whose copy is there, but a version that came later."""
    if not scene.schedule.move:
        return []
    left, there = scene.source.data(), scene.destination
    return [
        f"{key!r} was moved, but its source is still there"
        for key, (state, _) in scene.claims.last.items()
        if state == "copied"
        # Somebody may have replaced or removed the copy before the source was deleted.
        and left.get(key) in {there.get(key)} & set(there.landed.get(key, []))
    ]


# -- uploads and journals


def _are_journals_spoilt(scene: Scene) -> bool:
    """Whether the store has changed what names uploads and objects of ours."""
    return any(key.startswith(OWN_PREFIX) for key in scene.destination.damaged)


#: Requests that clear up what a transfer has left.
_CLEARING: Final = ("abort_upload", "delete", "list", "list_uploads", "read")


def _may_be_hindered(schedule: Schedule) -> bool:
    """Whether a fault may keep gateways from clearing up, so that the sweep has to."""
    return any(
        isinstance(fault, Kill | Terminate | Stop | Cut | Call)
        or (isinstance(fault, Store) and fault.method in _CLEARING and fault.count >= _PATIENCE)
        or (isinstance(fault, Store) and fault.method in _CLEARING and fault.kind == "denied")
        for fault in schedule.faults
    )


def _left(scene: Scene, state: str, *, is_calm: bool = False) -> list[str]:
    """Only what failed keeps a journal, and only what a journal names is open."""
    destination = scene.destination
    uploads, journals = destination.open_uploads(), destination.journals()
    uploads = {id_: key for id_, key in uploads.items() if id_ not in destination.orphans}
    spoilt = {key for key, body in journals.items() if body == destination.spoilt.get(key)}
    if spoilt:
        uploads = {}  # It may name them.
    if state in ("succeeded", "cancelled") and (is_calm or not _may_be_hindered(scene.schedule)):
        found = [f"{state}, but the upload {row} is open" for row in sorted(uploads.items())]
        left = sorted(journals.keys() - spoilt)
        return found + [f"{state}, but the journal {key} is there" for key in left]
    named = _named({key: body for key, body in journals.items() if key not in spoilt})
    return [
        f"the upload {upload_id} of {key!r} is open and named nowhere"
        for upload_id, key in uploads.items()
        if (key, upload_id) not in named and (key, None) not in named
    ]


def _named(journals: Mapping[str, bytes]) -> set[tuple[str, str | None]]:
    """Key and id of the uploads in the journals; no id where it was only intended."""
    documents = [json.loads(body) for body in journals.values()]
    rows = [row for document in documents for row in (*document["uploads"], *document["lost"])]
    return {(row["key"], row.get("upload_id")) for row in rows}


# -- processes


def _processes(scene: Scene) -> list[str]:
    fleet = scene.fleet
    found = [
        f"{process.name}: {text}" for process in scene.world.processes for text in process.unhandled
    ]
    for gateway in _gateways(scene):
        if not gateway.has_ended:
            continue
        names = [task.get_name() for task in gateway.process.loop.tasks]
        if names and gateway.process.name not in fleet.woken_to_end:
            found.append(f"{gateway.process.name}: tasks are left: {names}")
        if gateway.service.sink.held_bytes:
            found.append(f"{gateway.process.name}: chunks are left in memory")
    if fleet.most_held_bytes > fleet.settings["assembly_mib"] << 20:
        found.append(f"a sink held {fleet.most_held_bytes} bytes")
    if fleet.most_waiting_frames > _MOST_WAITING_FRAMES:
        found.append(f"{fleet.most_waiting_frames} frames waited at a relay")
    return found


def _gateways(scene: Scene) -> tuple[Gateway, ...]:
    return (*scene.fleet.gateways.values(), *scene.fleet.former)
