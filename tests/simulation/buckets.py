"""Buckets in memory that keep accounts: who wrote what, and what was done to it since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from tests import memory_store as memory
from tests.simulation.world import EPOCH_S, World

from skyplane_gateway.common.errors import ManifestUnreadable, Throttled
from skyplane_gateway.common.objects import ObjectAttributes, ObjectInfo, StoreSpec
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.manifest.reader import ManifestReader

#: What may become of a request. `late`: it is carried out long after it was sent, whatever
#: has become of its sender. `ends early`: a body stops in the middle without an error.
Kind = Literal[
    "throttled",
    "unavailable",
    "lost answer",
    "slow",
    "late",
    "wrong bytes",
    "truncated",
    "ends early",
    "corrupt",
    "denied",
]
WRONG: Final[Kind] = "wrong bytes"

#: Objects under it are the transfer's own notes, not a user's.
OWN_PREFIX: Final = ".skyplane/"
JOURNALS: Final = ".skyplane/jobs/"


PLAIN: Final = ObjectAttributes()


class Content(NamedTuple):
    """What an object is: two of the same content are equal."""

    body: bytes
    attributes: ObjectAttributes = PLAIN


@dataclass(frozen=True, slots=True)
class Injected:
    """Requests number `first` to `first + count - 1` of a method have a fault."""

    method: str
    first: int
    count: int
    kind: Kind


def _no_objection(key: str, there: ObjectInfo) -> str:
    return ""


def _nobody_looks(key: str) -> None:
    """Reads belong to no run."""


def _nobody_minds(key: str, content: Content) -> None:
    """Deletes belong to no run."""


@dataclass(slots=True)
class Bucket:
    """One bucket of a world: its faults, and what was done to it.

    Attributes:
        trusts_checksum: whether the store vouches for its checksums.
        put_bytes: key -> bytes sent there, whole objects and parts.
        versions: key -> everything that a user has given it.
        landed: key -> everything that a transfer has given it.
        removed: keys that a user has deleted and nobody has written since.
        absent: keys that a user had written, and that were not there at the last listing.
        damaged: keys of which the store has ever changed the bytes.
        spoilt: key -> what the store last made of a whole object, in place of what it got.
        objection: why the rule forbids that a transfer replaces that object of a user;
            empty where it does not.
        look: told of every key that a transfer has written.
        deleted: told of everything that a transfer deletes.
        has_forgotten: a journal was removed, and with it the knowledge of what is ours.
        moments: key -> what the wall clock showed when a user gave it each version.
        is_left: the run has ended, and left no journal: nobody goes on.
        orphans: uploads that the store began then for gateways that were dead: nobody but a
            sweep can know of them.
        wrongs: what was done against the rule.
    """

    world: World
    name: str
    trusts_checksum: bool = True
    faults: list[Injected] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    put_bytes: Counter[str] = field(default_factory=Counter)
    read_bytes: int = 0
    versions: dict[str, list[Content]] = field(default_factory=dict)
    landed: dict[str, list[Content]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    damaged: set[str] = field(default_factory=set)
    spoilt: dict[str, bytes] = field(default_factory=dict)
    objection: Callable[[str, ObjectInfo], str] = _no_objection
    look: Callable[[str], None] = _nobody_looks
    deleted: Callable[[str, Content], None] = _nobody_minds
    has_forgotten: bool = False
    moments: dict[str, list[float]] = field(default_factory=dict)
    is_left: bool = False
    orphans: set[str] = field(default_factory=set)
    wrongs: list[str] = field(default_factory=list)
    _headed_s: dict[str, float] = field(default_factory=dict)
    _written_s: dict[str, float] = field(default_factory=dict)
    _listed_s: float = -1e9
    _refuses_until_s: float = -1e9
    _retry_after_s: float | None = None

    def __post_init__(self) -> None:
        memory.create_bucket(self.name)

    @property
    def spec(self) -> StoreSpec:
        return StoreSpec("memory", self.name)

    # -- what a user does beside the transfer

    def write(self, key: str, body: bytes, attributes: ObjectAttributes = PLAIN) -> None:
        memory.MemoryStore(self.spec, self.world.clock).put(key, body, attributes=attributes)
        self.versions.setdefault(key, []).append(Content(body, attributes))
        self.moments.setdefault(key, []).append(EPOCH_S + self.world.now)
        self.removed.discard(key)
        self._written_s[key] = self.world.now

    def remove(self, key: str) -> None:
        memory.MemoryStore(self.spec, self.world.clock).delete(key)
        self.removed.add(key)

    def lapse(self) -> None:
        """Abort all uploads, as a bucket's own rule may."""
        memory._buckets[self.name].uploads.clear()

    # -- what a transfer does

    def was_listed(self, prefix: str) -> None:
        if not prefix.startswith(OWN_PREFIX):
            self._listed_s = self.world.now
            self.absent = self.versions.keys() - self.data().keys()

    def came_unseen(self, key: str) -> bool:
        """Whether a user has written it since the last listing."""
        return self._written_s.get(key, -1e9) > self._listed_s

    def was_absent(self, key: str) -> bool:
        """Whether a user's object that is there was not at the last listing."""
        return key in self.absent and self.came_unseen(key)

    def was_headed(self, key: str) -> None:
        self._headed_s[key] = self.world.now

    def is_fresh(self, key: str) -> bool:
        """Whether a user has written it since it was last asked for."""
        return self._written_s.get(key, -1e9) >= self._headed_s.get(key, -1e9)

    def was_deleted(self, key: str) -> None:
        content = self.get(key)
        if key.startswith(JOURNALS):
            self.has_forgotten = True
        elif not key.startswith(OWN_PREFIX) and content is not None:
            self.deleted(key, content)

    def info(self, key: str) -> ObjectInfo | None:
        found = memory._buckets[self.name].objects.get(key)
        return None if found is None else found.info

    def was_written(self, key: str, before: Content | None, info: ObjectInfo | None) -> None:
        """See that no user's object was replaced that the transfer may not have seen.

        Args:
            before, info: what was there.
        """
        if key.startswith(OWN_PREFIX):
            return
        if info is not None and info == self.info(key):
            return  # A completion that was asked for again writes nothing.
        self.landed.setdefault(key, []).append(self.content()[key])
        self.removed.discard(key)
        self.look(key)
        if before is None or info is None or not self.is_users(key, before):
            return
        objection = self.objection(key, info)
        if objection:
            self.wrongs.append(f"{key!r} of somebody else was replaced, but {objection}")
        elif self.came_unseen(key):
            self.wrongs.append(f"{key!r} of somebody else was replaced unseen")

    # -- what is there

    def is_users(self, key: str, content: Content | None) -> bool:
        return content in self.versions.get(key, [])

    def get(self, key: str) -> Content | None:
        found = memory._buckets[self.name].objects.get(key)
        if found is None:
            return None
        return _content(found)

    def content(self) -> dict[str, Content]:
        """Everything."""
        return {key: _content(found) for key, found in memory._buckets[self.name].objects.items()}

    def data(self) -> dict[str, Content]:
        """Everything but the transfer's own notes."""
        return {k: found for k, found in self.content().items() if not k.startswith(OWN_PREFIX)}

    def journals(self) -> dict[str, bytes]:
        """The transfer's own notes."""
        return {k: found.body for k, found in self.content().items() if k.startswith(JOURNALS)}

    def recorded(self) -> dict[str, str]:
        """Key -> version of each copy that the manifest has; none where it cannot be read."""
        store = memory.MemoryStore(self.spec, self.world.clock)
        try:
            return {row.key: row.copy for row in ManifestReader(store, "").rows() if row.copy}
        except ManifestUnreadable:
            return {}

    def open_uploads(self) -> dict[str, str]:
        """Upload id -> key."""
        uploads = memory._buckets[self.name].uploads
        return {upload_id: upload.key for upload_id, upload in uploads.items()}

    def drop(self) -> None:
        memory.delete_bucket(self.name)

    # -- faults

    def refuse(self, for_s: float, retry_after_s: float | None = None) -> None:
        """Ask everybody to slow down from now on for so long, whatever they want."""
        self._refuses_until_s = self.world.now + for_s
        self._retry_after_s = retry_after_s

    def ensure_taken(self, method: str, key: str) -> None:
        """Raises Throttled while the store refuses all requests."""
        if self.world.now < self._refuses_until_s:
            raise Throttled(f"slow down ({method} {key!r})", retry_after_s=self._retry_after_s)

    def next_fault(self, method: str) -> Kind | None:
        self.requests[method] += 1
        number = self.requests[method]
        for fault in self.faults:
            if fault.method == method and 0 <= number - fault.first < fault.count:
                return fault.kind
        return None


def _content(found: Any) -> Content:
    """An object of the store without the mark that copies carry."""
    return Content(found.body, marked(found.info.attributes or ObjectAttributes(), None))
