"""Keys, journals and documents of jobs of the last release mean the same today."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_gateway.config import TransferSpec
from skyplane_gateway.journal.document import rule_digest
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.storage.open import transfer_spec_of
from skyplane_orchestration.transfer.job_run import transfer_key_of

ENDS = (
    Location("s3://a/in/", "aws:us-east-1"),
    Location("gs://b/out/", "gcp:europe-west4"),
)
RUN = RunIdentity("prod", "dag", "run")
#: Rules that are no part of the transfer key.
DEMANDS: dict[str, Any] = {
    "publish_last": ("*.json",),
    "verify": "reread",
    "limits": Limits(chunk_mib=8),
    "allow_empty": True,
    "allow_failed": True,
    "strict_metadata": True,
}

#: What a job chooses -> its transfer key, and the first digits of its journal's rule, as the last
#: release has computed them. A changed key makes a running transfer a new one; a changed rule
#: makes its journal that of another transfer.
GOLDEN: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({}, "889bcfa6f1a5fb0dd9f72b6e2819ef0e", "97793f5679957a04"),
    ({"recursive": False}, "1ee9532f9798fb891d5154aefecdd3f4", "04f138130d9e2ad6"),
    ({"include": ("*.csv",)}, "fc9fe544d6f4a36db58a2b64fc7abeba", "4c0ad8749e2dceec"),
    ({"exclude": ("tmp/**",)}, "611d1d0d00f1238f62662990e301a608", "b4e28ec1e1b81bfe"),
    ({"conflict": "skip"}, "25eca6ceeec33923e4a3825044799548", "c9ca68db8edd0a12"),
    ({"on_illegal_key": "escape"}, "35de16148bd808ebf5f382b0d4a16482", "dd8064826e85cca4"),
    ({"on_archived_object": "read"}, "2a4cc68c58d94e593dbd008ac3412c3a", "319defb100aa63a3"),
    ({"files_from": ("b", "a")}, "dd21fa95227eba9463aa033de66dfbd6", "90cc2c51979dbcd1"),
    (
        {"newer_than": "24h", "older_than": "2026-01-31"},
        "b67fe4a00e5cc49546153f3f22059b7a",
        "6a383acc34c46bbe",
    ),
    (
        {"min_size": "1K", "max_size": "2.5G"},
        "97090c895fe7d6032158472aef317294",
        "e8a5b8a02a7afc38",
    ),
    ({"encrypt": "always"}, "43809ba60da30e06e87b90984f051073", "97793f5679957a04"),
    (
        {"content_type": "text/plain", "cache_control": "no-store"},
        "7f941740eff38b43ebe832b8c9b18c48",
        "4804509d1d027658",
    ),
    (
        {"headers": {"Content-Language": "en"}, "object_metadata": {"team": "a"}},
        "a08bbf4ae602ede444091283c4ef96d1",
        "acc72e6f8ae96d29",
    ),
    (DEMANDS, "889bcfa6f1a5fb0dd9f72b6e2819ef0e", "1150e309c3558899"),
    (
        {
            "newer_than": "24h",
            "on_illegal_key": "skip",
            "on_archived_object": "skip",
            "encrypt": "never",
            "cache_control": "a",
            "headers": {"Content-Language": "en"},
        },
        "74bf445c1a595b0b075ac8d465cde894",
        "699e954c0b21d225",
    ),
)


@pytest.mark.parametrize(("chosen", "key", "rule"), GOLDEN)
def test_key_and_journal_are_those_of_the_last_release(
    chosen: dict[str, Any], key: str, rule: str
) -> None:
    job = TransferJob(*ENDS, **chosen)
    assert transfer_key_of(RUN, job) == key
    assert rule_digest(transfer_spec_of(job)).startswith(rule)


def test_documents_of_the_last_release_are_read() -> None:
    chosen = {"recursive": False, "include": ["*.csv"], "conflict": "skip", "verify": "none"}
    job = {
        "schema_version": 1,
        "source": {"url": "s3://a/in/k"},
        "destination": {"url": "gs://b/out/"},
        "on_illegal_key": "skip",
        "min_size": "1K",
        **chosen,
    }
    read = TransferJob.from_dict(job)
    assert {**read.to_dict(), "source": 0, "destination": 0} == {
        **read.to_dict(),
        **chosen,
        "source": 0,
        "destination": 0,
    }
    assert (read.on_illegal_key, read.min_size) == ("skip", "1K")
    store = {"kind": "s3", "bucket": "a"}
    spec = {"source": store, "destination": store, "source_prefix": "a", "destination_prefix": "b"}
    lead = TransferSpec.from_dict({**spec, **chosen, "on_illegal_key": "skip"})
    assert lead.to_dict().items() >= {**chosen, "on_illegal_key": "skip"}.items()
