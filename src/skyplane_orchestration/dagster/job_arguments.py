"""The fields of a job as keyword arguments of assets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from skyplane_gateway.common.job_options import (
    ArchivedObjectRule,
    ConflictRule,
    EditedCopyRule,
    IllegalKeyRule,
    Verification,
)
from skyplane_orchestration.model.job import (
    Encryption,
    Limits,
    Objective,
    Policy,
    ProbeRule,
    ServerSideRule,
)
from skyplane_orchestration.model.source_contents import SourceContents


class JobArguments(TypedDict, total=False):
    """The fields of `TransferJob` other than source and destination."""

    objective: Objective | None
    recursive: bool
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    publish_last: tuple[str, ...]
    allow_empty: bool
    allow_failed: bool
    limits: Limits
    policy: Policy
    volume_gb: float | None
    objects: int | None
    contents: SourceContents
    move: bool
    strict_metadata: bool
    guess_mime_type: bool
    files_from: tuple[str, ...] | None
    delete: bool
    allow_unmatched_patterns: bool
    headers: Mapping[str, str]
    object_metadata: Mapping[str, str]
    conflict: ConflictRule
    verify: Verification
    newer_than: str | None
    older_than: str | None
    min_size: str | None
    max_size: str | None
    max_delete: str
    bwlimit: str | None
    on_illegal_key: IllegalKeyRule
    on_archived_object: ArchivedObjectRule
    manifest_at: str
    trust_manifest: bool
    on_edited_copy: EditedCopyRule
    server_side_copy: ServerSideRule
    probe: ProbeRule
    encrypt: Encryption
    content_type: str | None
    cache_control: str | None
