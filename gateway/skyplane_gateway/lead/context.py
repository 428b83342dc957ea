"""What all parts of one led transfer share."""

from __future__ import annotations

from dataclasses import dataclass, field

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.objects import StoreCapabilities
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.lead.chunk_delivery import ChunkDelivery
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.lead.server_side_copies import ServerSideCopies
from skyplane_gateway.lead.sink_pool import SinkPool
from skyplane_gateway.lead.source_store import SourceStore


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """A multipart upload that has begun and has not ended."""

    key: str
    upload_id: str


@dataclass(frozen=True, slots=True)
class TransferContext:
    """The job, both ends, and the means of one transfer."""

    spec: TransferSpec
    source: SourceStore
    sinks: SinkPool
    delivery: ChunkDelivery
    capabilities: StoreCapabilities
    server_side: ServerSideCopies
    report: Report
    retries: Retries
    clock: Clock
    #: Objects up to this size are sent whole; larger ones in parts.
    whole_bytes: int
    open_uploads: set[OpenUpload] = field(default_factory=set)
