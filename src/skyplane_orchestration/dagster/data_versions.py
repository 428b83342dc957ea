"""Data versions: digests of what lies at a source."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import dagster as dg

from skyplane_orchestration.model.result import TransferResult


def data_version_of(results: Sequence[TransferResult]) -> dg.DataVersion | None:
    """The data version of a copy: the digest of its source, as this run has listed it.

    None where an object was not copied or the listing did not end; Dagster then makes a version
    that no other run has. Dagster gives all partitions of one run the same version, so several
    results have a common one.
    """
    digests = [result.source_digest for result in results]
    if not all(digests) or any(result.failed or result.unfinished for result in results):
        return None
    if len(digests) == 1:
        return dg.DataVersion(digests[0])
    return dg.DataVersion(hashlib.sha256("\n".join(digests).encode()).hexdigest())
