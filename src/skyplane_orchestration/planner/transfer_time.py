"""Seconds that the objects of a job take, whatever the network between the regions carries.

A transfer takes `max(VOL / (share * G), object seconds)`. The share is 1, unless the largest object
takes longer than all bytes together. The object seconds are the largest of several bounds, since
listing, reading, sending and writing go on side by side:

- requests over what the store takes, per prefix of S3, bucket of Google or account of Azure;
- requests x seconds of one over those that the gateways of an end have in flight;
- objects and parts that the lead has in flight, and the pages that it lists one after another;
- one object alone, from its read to its commit.

Requests follow from the size of an average object. docs/explanation/planner.md derives each bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from skyplane_gateway.config import DEFAULT_STORE_THREADS
from skyplane_orchestration.formatting import counted, duration
from skyplane_orchestration.grids import InstanceType
from skyplane_orchestration.planner.pricing.instance_billing import cloud_of
from skyplane_orchestration.planner.pricing.plan_cost import RequestCounts, request_counts
from skyplane_orchestration.units import BYTES_PER_MIB, gb_to_bytes, mib_to_bytes


@dataclass(frozen=True, slots=True)
class StoreRates:
    """How many requests a store takes.

    Attributes:
        reads_per_s, writes_per_s: requests per second; a listing is a read.
        of: what they hold for; a job counts as one such thing.
        doubling_s: seconds after which the store takes twice as many; infinite if it does not.
        per_object_s: requests per second for one object.
        source, as_of: where the figures are stated, and when that was read.
    """

    reads_per_s: float
    writes_per_s: float
    of: str
    source: str
    as_of: str
    doubling_s: float = math.inf
    per_object_s: float = math.inf


#: By cloud. A file on this machine has no such limit.
STORE_RATES: Final[Mapping[str, StoreRates]] = MappingProxyType(
    {
        "aws": StoreRates(
            5500.0,
            3500.0,
            "one prefix",
            "https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html",
            "2026-11-27",
        ),
        "gcp": StoreRates(
            5000.0,
            1000.0,
            "a bucket at first",
            "https://cloud.google.com/storage/docs/request-rate",
            "2026-11-27",
            doubling_s=1200.0,
        ),
        "azure": StoreRates(
            20_000.0,
            20_000.0,
            "a storage account",
            "https://learn.microsoft.com/azure/storage/common/scalability-targets-standard-account"
            " and .../storage/blobs/scalability-targets (one blob)",
            "2026-11-27",
            per_object_s=500.0,
        ),
    }
)
#: Seconds until a store answers. S3 states "roughly 100-200 milliseconds" (source as above). Nobody
#: states it for the others, which count as S3: not verified.
REQUEST_S: Final = 0.1
#: Bytes per second of one request. S3 advises one request for each 85 to 90 MB/s (its page on
#: request parallelization, general knowledge, not read again). The others count as S3.
STREAM_BYTES_PER_S: Final = 90e6
#: Seconds of the lead for a page of a listing besides the answer: `noop-50k` of bench.rerun.
PAGE_S: Final = 0.08

#: Bounds of a gateway process, which the library does not import: tests compare them.
#: Requests to a bucket, small objects of a chunk and their bytes, chunks that are read, and bytes
#: that a sink holds. Larger bodies than the fourth need a thread each.
REQUESTS, BATCH_OBJECTS, BATCH_BYTES = 64, 64, 4 * BYTES_PER_MIB
SMALL_BYTES, READERS, SINK_BYTES = BYTES_PER_MIB, 8, 256 * BYTES_PER_MIB
#: What the lead has in flight in the whole fleet: batches or objects, and parts.
LEAD_OBJECTS, LEAD_PARTS = 64, 1024

#: The rate of one object in parts, as a share of that of many: `one-large` of bench.copy, where the
#: processors are the limit. No cloud was measured; upstream's gateway had a third.
ONE_OBJECT_SHARE: Final = 0.65


class Bound(NamedTuple):
    """The least seconds of a transfer, and what takes them."""

    seconds: float
    what: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.what}: {duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class ObjectWork:
    """The requests of a job at both ends.

    Attributes:
        src, destinations: region tags.
        body_bytes: of a request that carries bytes; there are `counts.reads` at each end.
        body_s: seconds of such a request.
        share: of the plan's rate, what the objects reach.
    """

    src: str
    destinations: tuple[str, ...]
    objects: int
    counts: RequestCounts
    body_bytes: float
    body_s: float
    share: float = 1.0

    @classmethod
    def of(
        cls,
        src: str,
        destinations: tuple[str, ...],
        objects: int,
        volume_gb: float,
        part_mib: float,
        whole_mib: float,
        largest: float = 0.0,
    ) -> ObjectWork:
        """The work of `objects` of the same size, but for the largest one.

        Args:
            part_mib, whole_mib: as in `Limits`.
            largest: share of the bytes that the largest object has; 0 where it is not known.
        """
        total_bytes = gb_to_bytes(volume_gb)
        counts = request_counts(
            objects, total_bytes / objects, destinations, part_mib, whole_mib=whole_mib
        )
        body_bytes = max(total_bytes / counts.reads, 1.0)
        body_s = REQUEST_S + body_bytes / STREAM_BYTES_PER_S
        largest = 1.0 if objects == 1 else largest
        is_in_parts = total_bytes * largest > mib_to_bytes(whole_mib)
        share = min(1.0, ONE_OBJECT_SHARE / largest) if is_in_parts else 1.0
        return cls(src, destinations, objects, counts, body_bytes, body_s, share)

    @property
    def least(self) -> Bound:
        """The largest bound that no fleet changes."""
        return max((*self._of_stores(), *self._of_lead()), key=lambda one: one.seconds)

    def bound(self, instances: Mapping[str, int], types: Mapping[str, InstanceType]) -> Bound:
        """The largest bound with these instances, by region."""
        bounds = [self.least]
        for end in {self.src, *self.destinations}:
            # Gateways of one region serve both ends.
            tag = end if end in instances else next(iter(instances))
            seconds = self.seconds_with_one(end, types[tag]) / instances[tag]
            fleet = counted(instances[tag], "instance")
            what = f"{self._named} with the requests that {fleet} in {tag} can have in flight"
            bounds.append(Bound(seconds, what))
        return max(bounds, key=lambda one: one.seconds)

    def seconds_with_one(self, tag: str, kind: InstanceType) -> float:
        """The least seconds with one instance of a type at an end, for its gateways' requests."""
        if cloud_of(tag) not in STORE_RATES:
            return 0.0
        at_once = math.inf
        if tag == self.src:
            at_once = min(REQUESTS, READERS * self._per_chunk)
        if tag in self.destinations:
            writers = REQUESTS if self.body_bytes <= SMALL_BYTES else DEFAULT_STORE_THREADS
            # A sink counts the bytes of a chunk from its read at the source until its commit.
            held = max(1.0, SINK_BYTES // self.body_bytes) / 2
            at_once = min(at_once, writers, held)
        return self.counts.reads * self.body_s / at_once / kind.processes

    @property
    def _per_chunk(self) -> int:
        """Requests of one chunk: small objects share it."""
        return max(1, min(BATCH_OBJECTS, int(BATCH_BYTES // self.body_bytes)))

    @property
    def _named(self) -> str:
        return f"{self.objects:,} object{'s' if self.objects > 1 else ''}"

    def _of_stores(self) -> Iterator[Bound]:
        ends = [(self.src, "reads", self.counts.reads)]
        ends += [(tag, "writes", count) for tag, count in self.counts.writes.items()]
        for tag, verb, count in ends:
            rates = STORE_RATES.get(cloud_of(tag))
            if rates is None:
                continue
            per_s = rates.reads_per_s if verb == "reads" else rates.writes_per_s
            requests = self._named if count == self.objects else f"{count:,} {verb}"
            what = f"{requests} at {per_s:,.0f} {verb}/s of {rates.of}"
            yield Bound(_seconds_of(count, per_s, rates.doubling_s), what)
            if self.objects == 1:
                per_object = f"{requests} at {rates.per_object_s:,.0f} a second of one object"
                yield Bound(count / rates.per_object_s, per_object)

    def _of_lead(self) -> Iterator[Bound]:
        pages_s = self.counts.listings * (PAGE_S + REQUEST_S)
        yield Bound(pages_s, f"{self._named} listed in {self.counts.listings:,} pages")
        is_in_parts = self.counts.reads > self.objects
        at_once = LEAD_PARTS if is_in_parts else LEAD_OBJECTS * self._per_chunk
        # Read, then written; the last ones take as long as one object alone.
        rounds = math.ceil(self.counts.reads / at_once)
        ends_s = 2 * REQUEST_S if is_in_parts else 0.0
        what = f"{self._named} with {at_once:,} requests in flight in the fleet"
        if rounds == 1:
            what = f"{self._named}, from the read to the commit"
        yield Bound(rounds * 2 * self.body_s + ends_s, what)


def _seconds_of(requests: int, per_s: float, doubling_s: float) -> float:
    """Seconds of requests to a store that takes `per_s` at first, and twice as many each time."""
    seconds = 0.0
    left = float(requests)
    while left > per_s * doubling_s:
        left -= per_s * doubling_s
        seconds += doubling_s
        per_s *= 2
    return seconds + left / per_s
