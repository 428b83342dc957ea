"""A bucket with Object Lock and a default retention takes no body without a checksum.

S3 answers 400 InvalidRequest then, to objects and to parts. The emulators take everything, so
every request that carries a body is looked at here.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import md5
from typing import Any

import pytest
from tests.faults.http_proxy import running
from tests.faults.http_rules import Rule
from tests.gateway.stores.async_first import AsyncFirst
from tests.gateway.stores.scripted import CREDENTIALS, Reply, ScriptedServer

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.journal.document import Journal
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.stores import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries

BODY = b"123456789"
#: 0xE3069283 is the check value of CRC-32C.
CRC32C = "4waSgw=="
MD5 = b64encode(md5(BODY, usedforsecurity=False).digest()).decode()

REFUSED = Rule(
    "answer",
    method="PUT",
    target=r"^/[^/?]+/[^?]",
    without=r"(x-amz-checksum-\w+|Content-MD5): \S",
    times=0,
    status=400,
    body=b"<Error><Code>InvalidRequest</Code><Message>Content-MD5 OR x-amz-checksum- HTTP header "
    b"is required for Put Object requests with Object Lock parameters</Message></Error>",
)

WRITES: Mapping[str, Callable[[ObjectStore], Any]] = {
    "object": lambda store: store.put("k", BODY),
    "object with its checksum": lambda store: store.put("k", BODY, crc32c=crc32c(BODY)),
    "part": lambda store: store.put_part("k", "u", 1, BODY, offset=0, crc32c=crc32c(BODY)),
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("use", ["", "trusted", "sent", "none"])
@pytest.mark.parametrize("write", WRITES)
def test_each_body_has_a_checksum(
    scripted: ScriptedServer, write: str, use: str, is_async: bool
) -> None:
    """Servers that refuse the newer header get the older one."""
    store = scripted.open(Reply(200, headers={"ETag": '"e"'}), checksum=use)
    WRITES[write](AsyncFirst(store) if is_async else store)
    (request,) = scripted.requests
    found = {name: request.headers.get(name) for name in ("x-amz-checksum-crc32c", "content-md5")}
    older = use == "none"
    assert found == {
        "x-amz-checksum-crc32c": None if older else CRC32C,
        "content-md5": MD5 if older else None,
    }


@pytest.mark.parametrize("use", ["sent", "none"])
def test_a_journal_is_written_to_a_locked_bucket(moto_url: str, use: str) -> None:
    with running(moto_url, [REFUSED]) as proxy:
        spec = StoreSpec("s3", "locked", proxy.url, "us-east-1", (("checksum", use),))
        store = open_without_retries(spec, CREDENTIALS)
        store._client.create_bucket(Bucket="locked")  # type: ignore[attr-defined]
        journal = Journal("ab" * 16, 1, "rule", 1 << 20, writer="w", sequence=1)
        etag = JournalFolder(store, "", journal.transfer_key).write(journal, None)
        store.close()
    assert etag
