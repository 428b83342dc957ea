"""Bodies block by block: no copies, and how much of them a thread has sent."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from skyplane_gateway.common.objects import MIB
from skyplane_gateway.stores.body_blocks import Blocks, noting_sent
from skyplane_gateway.stores.gcs.requests import MultipartRelatedBody
from skyplane_gateway.stores.s3.body import SentBody

BODY = bytes(3 * MIB) + b"x"


def test_a_body_goes_in_blocks_that_share_its_memory() -> None:
    body = bytearray(BODY)
    for _ in range(2):
        found = list(Blocks(body))
        assert [len(block) for block in found] == [MIB, MIB, MIB, 1]
        assert all(block.obj is body for block in found)
    assert (len(Blocks(body)), list(Blocks(b""))) == (len(BODY), [])


def test_what_a_thread_has_sent_is_noted_and_a_retry_begins_at_zero() -> None:
    noted: list[int] = []
    with noting_sent(noted.append):
        first = iter(Blocks(BODY))
        next(first), next(first)
        list(Blocks(BODY))
    list(Blocks(BODY))
    assert noted == [0, MIB, 0, MIB, 2 * MIB, 3 * MIB]


def test_other_threads_note_nothing() -> None:
    noted: list[int] = []
    with noting_sent(noted.append):
        other = threading.Thread(target=lambda: list(Blocks(BODY)))
        other.start()
        other.join()
    assert noted == []


@pytest.mark.parametrize("store", ["s3", "gcs", "azure"])
def test_every_store_that_sends_over_http_is_noted(store: str) -> None:
    bodies: dict[str, Any] = {
        "s3": SentBody(BODY).blocks(),
        "gcs": MultipartRelatedBody({}, BODY),
        "azure": Blocks(BODY, MIB),
    }
    noted: list[int] = []
    with noting_sent(noted.append):
        sent = b"".join(bodies[store])
    assert BODY in sent
    assert noted == [0, MIB, 2 * MIB, 3 * MIB]
