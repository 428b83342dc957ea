"""Google Cloud Storage with faults on the way: the result is right, or an error is raised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.faults import fake_gcs
from tests.faults.http_proxy import running
from tests.faults.http_rules import Rule
from tests.gateway.stores.conftest import Harness
from tests.gateway.stores.test_faults_real_servers import (
    BODY,
    LOST,
    NEVER_DONE,
    Harmed,
    action,
)

from skyplane_gateway import errors
from skyplane_gateway.checksum import crc32c
from skyplane_gateway.objects import IF_ABSENT
from skyplane_gateway.stores import StoreSpec
from skyplane_gateway.stores.gcs.store import GcsStore

UPLOAD = r"/upload/storage/v1/.*name="


@pytest.fixture
def harmed(fake_gcs_url: str) -> Iterator[Harmed]:
    bucket = fake_gcs.create_bucket(fake_gcs_url)
    with running(fake_gcs_url) as proxy:
        plain = GcsStore(StoreSpec("gcs", bucket, proxy.url))
        yield Harmed(Harness(StoreSpec("gcs", bucket, fake_gcs_url)), proxy, plain)
        plain.close()


@pytest.mark.parametrize(
    "rule",
    [Rule("truncate", keep_bytes=0), Rule("truncate", keep_bytes=777), Rule("whole")],
    ids=lambda rule: f"{rule.action}-{rule.keep_bytes}",
)
def test_a_range_that_ends_early_is_read_again(harmed: Harmed, rule: Rule) -> None:
    info = harmed.direct.shared.put("k", BODY + b"and more")
    harmed.harm(rule, method="GET", target="/k", times=2)
    with pytest.raises(errors.StoreUnavailable) as caught:
        harmed.read(harmed.plain, "k", info.etag, len(BODY))
    assert not caught.value.is_permanent
    assert harmed.read(harmed.patient, "k", info.etag, len(BODY)) == BODY
    assert harmed.asked("GET", "/k") == 3


@pytest.mark.parametrize("rule", LOST + NEVER_DONE, ids=action)
def test_a_write_happens_once_if_its_response_is_lost(harmed: Harmed, rule: Rule) -> None:
    harmed.harm(rule, method="POST", target=UPLOAD)
    written = harmed.patient.put("k", BODY, precondition=IF_ABSENT, crc32c=crc32c(BODY))
    assert harmed.direct.shared.head("k").etag == written.etag
    assert harmed.direct.read("k") == BODY


@pytest.mark.parametrize("rule", LOST + NEVER_DONE, ids=action)
def test_a_part_is_stored_once_if_its_response_is_lost(harmed: Harmed, rule: Rule) -> None:
    upload_id = harmed.direct.shared.create_upload("k")
    harmed.harm(rule, method="POST", target=f"{UPLOAD}.*00001")
    part = harmed.patient.put_part("k", upload_id, 1, BODY, offset=0, crc32c=crc32c(BODY))
    assert harmed.direct.shared.list_parts("k", upload_id) == (part,)


@pytest.mark.parametrize("rule", LOST + NEVER_DONE, ids=action)
@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/compose"),
        ("DELETE", r"\.upload"),
        ("DELETE", "00001"),
        ("GET", "prefix="),
        ("GET", "alt=media"),
    ],
)
def test_a_completion_is_repeated_until_it_is_known(
    harmed: Harmed, rule: Rule, method: str, target: str
) -> None:
    upload_id, parts = harmed.begin()
    harmed.harm(rule, method=method, target=target)
    written = harmed.complete(harmed.patient, upload_id, parts)
    assert harmed.direct.shared.head("k").etag == written.etag
    assert harmed.direct.read("k") == BODY
    assert list(harmed.direct.shared.list_uploads("")) == []


def test_throttling_is_waited_for(harmed: Harmed) -> None:
    harmed.harm(Rule("answer", status=429, headers=(("Retry-After", "7"),)), times=2)
    harmed.patient.put("k", BODY)
    assert harmed.now_s >= 14


def test_a_listing_continues_after_a_page_is_lost(
    harmed: Harmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyplane_gateway.stores.gcs.listing._PAGE_KEYS", 5)
    names = [f"p/{number:02}" for number in range(17)]
    harmed.direct.fill(names)
    harmed.harm(LOST[0], method="GET", target="pageToken=")
    assert [info.key for info in harmed.patient.list("p/")] == names


def test_a_page_token_that_is_repeated_is_an_error(scripted: Any, reply: Any) -> None:
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    scripted.replies += [reply(200, b'{"nextPageToken": "t"}')] * 2
    with pytest.raises(errors.StoreError, match="cannot be relied on"):
        list(store.list(""))
