"""What the rules of a job demand, said once more and independently of the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.buckets import Bucket, Content
from tests.simulation.schedule import ANNOUNCING

from skyplane_gateway.common.objects import ObjectInfo

if TYPE_CHECKING:
    from tests.simulation.run import Scene

#: So long before its commit an object may have been read.
READ_BEFORE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Rules:
    """Judges what a transfer does to the objects of others while it does it."""

    conflict: str
    source: Bucket
    destination: Bucket

    def apply(self) -> None:
        """Be told of everything from now on."""
        self.destination.objection = self.objection
        self.destination.look = self.written
        self.destination.deleted = self.removed_copy
        self.source.deleted = self.removed_source

    def objection(self, key: str, there: ObjectInfo) -> str:
        """Why that object of somebody else stays, whichever version of the source was seen;
        empty where it may be replaced."""
        reasons = [self._objection(there, *version) for version in self._seen(key)]
        return reasons[0] if reasons and all(reasons) else ""

    def _seen(self, key: str) -> list[tuple[int, float]]:
        """Size and moment of every version that the source had."""
        sizes = [len(content.body) for content in self.source.versions.get(key, [])]
        return list(zip(sizes, self.source.moments.get(key, []), strict=True))

    def _objection(self, there: ObjectInfo, size_bytes: int, modified: float) -> str:
        if self.conflict in ("fail", "skip"):
            return f"the rule is {self.conflict}"
        later_s = there.last_modified - modified
        is_alike = size_bytes == there.size_bytes
        if self.conflict == "replace-if-newer":
            is_kept = later_s >= 1.0 or (later_s >= -0.001 and is_alike)
            return "it is not older" if is_kept else ""
        if self.conflict == "replace-if-different" and is_alike and later_s > READ_BEFORE_S:
            return "it has the same size and is not older"
        return ""

    def written(self, key: str) -> None:
        """Only what the source has given may appear, and in the right order."""
        content = self.destination.get(key)
        if not self.source.is_users(key, content) and key not in self.destination.damaged:
            self.destination.wrongs.append(f"{key!r} was written as {shown(content)}, nobody's")
        self._published(key)

    def _published(self, key: str) -> None:
        """What announces others must not be there before they are."""
        if not key.endswith(ANNOUNCING):
            return
        there = self.destination.data()
        for other in self.source.data():
            if other.endswith(ANNOUNCING) or other in self.destination.removed:
                continue
            if self.source.was_absent(other):
                continue
            content = there.get(other)
            if not (
                self.source.is_users(other, content) or self.destination.is_users(other, content)
            ):
                self.destination.wrongs.append(f"{key!r} was there before {other!r} was")

    def removed_source(self, key: str, content: Content) -> None:
        """A move may delete what is safe at the destination."""
        copies = [*self.destination.landed.get(key, []), self.destination.get(key)]
        is_safe = content in copies
        if not is_safe and not self.source.is_fresh(key):
            self.source.wrongs.append(f"the source of {key!r} was deleted and is nowhere else")

    def removed_copy(self, key: str, content: Content) -> None:
        """A bad object may be deleted, but nobody else's."""
        if self.destination.is_users(key, content) and not self.source.is_users(key, content):
            self.destination.wrongs.append(f"{key!r} of somebody else was deleted")

    def stays(self, key: str, content: Content | None) -> bool:
        """Whether success may leave that object of somebody else in its place."""
        info = self.destination.info(key)
        if info is None or not self.destination.is_users(key, content):
            return False
        if self.destination.landed.get(key) or self.destination.came_unseen(key):
            return True  # It came after our copy, or after what was there had been kept.
        return self.conflict != "fail" and any(
            self._objection(info, *version) for version in self._seen(key)
        )

    def passes_over(self, key: str) -> bool:
        """Whether a later run may leave a copy of an older version in its place.

        Of a source that changed so long before its copy was committed, and after it had been
        read, no listing tells, when the size is the same. Under `replace-if-different` the lead
        asks again before that, and a copy tells what it was made of.
        """
        if self.conflict == "replace-if-different":
            return False
        info = self.destination.info(key)
        size_bytes, modified = self._seen(key)[-1]
        if info is None:
            return False
        is_younger = info.last_modified >= modified + READ_BEFORE_S
        looks_alike = info.size_bytes == size_bytes and is_younger
        is_kept = self.conflict != "fail" and bool(self._objection(info, size_bytes, modified))
        return looks_alike or is_kept


@dataclass(slots=True)
class Claims:
    """What leads entered into their reports, compared with the store at that moment."""

    scene: Scene
    last: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    lies: list[str] = field(default_factory=list)

    def enter(self, state: str, key: str, destination: str, row: Mapping[str, Any]) -> None:
        self.scene.world.note(f"{key}: {state} {row.get('code', '')}")
        self.last[key] = (state, row)
        source, there = self.scene.source, self.scene.destination
        if state == "copied":
            found = there.get(destination)
            is_ours = source.is_users(key, found)
            is_users = there.is_users(destination, found) or destination in there.removed
            has_landed = any(source.is_users(key, c) for c in there.landed.get(destination, []))
            # A user may have replaced it since.
            if not is_ours and not (is_users and has_landed):
                self.lies.append(f"{key!r} was reported as copied, but is {shown(found)}")
        elif state == "failed" and not row.get("reason"):
            self.lies.append(f"{key!r} was reported as failed without a reason")


def shown(content: Content | None) -> str:
    """An object, for people."""
    if content is None:
        return "missing"
    return f"{len(content.body)} bytes {content.body[:8].hex()}... {content.attributes.metadata}"
