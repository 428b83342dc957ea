"""A store that takes half of a transfer and holds the rest until the test lets it go.

So a process can be killed in mid-transfer however fast or slow the machine is: a proxy
before versitygw lets so many parts through. (moto would not do: it tells no checksums of
parts, without which none can be kept.)
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import boto3
from tests.faults import versitygw
from tests.faults.http_proxy import Exchange, FaultProxy, running
from tests.faults.http_rules import INTERNAL_ERROR, Rule

from skyplane_gateway.journal.document import decode_journal

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skyplane_orchestration.model.status import TransferStatus

MIB: Final = 1 << 20

#: Announces the others, so it comes last.
LAST: Final = "_SUCCESS"

#: In parts of 5 MiB: 20 in all.
LARGE: Final = {f"large{number}": 25 * MIB for number in range(4)}
SMALL: Final = {f"small{number}": 1000 + number for number in range(20)}
OBJECTS: Final = {**LARGE, **SMALL, LAST: 0}

#: Parts that get through before the rest is held.
PARTS_BEFORE: Final = 8

#: A hang guard; nothing is asserted about how long anything takes.
PATIENCE_S: Final = 120.0

_PREFIX: Final = "copy/"

Found = TypeVar("Found")


def wait_for(look: Callable[[], Found], what: str, patience_s: float = PATIENCE_S) -> Found:
    """The first true value of `look`."""
    deadline_s = time.monotonic() + patience_s
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"waited {patience_s:g} s for: {what}"
        time.sleep(0.05)
    return found


def refuse(proxy: FaultProxy) -> None:
    """What is held is lost, and further parts fail for now."""
    proxy.schedule.clear()
    rule = Rule("answer", "PUT", "partNumber", times=0, status=500, body=INTERNAL_ERROR)
    proxy.schedule.add(rule)
    proxy.release(drop=True)


def take(proxy: FaultProxy) -> None:
    """What is held goes on, and so does all that follows."""
    proxy.schedule.clear()
    proxy.release()


class Once:
    """An `on_status` that acts once, when both uploads are open; then the gate opens."""

    def __init__(self, gate: FaultProxy, act: Callable[[], None]) -> None:
        self._gate, self._act = gate, act
        self.done = False

    def __call__(self, status: TransferStatus) -> None:
        if not self.done and status.is_running and len(status.open_uploads) == 2:
            self.done = True
            self._act()
            take(self._gate)


def write_objects(folder: Path) -> Path:
    """`OBJECTS` as files."""
    folder.mkdir()
    for key, size in OBJECTS.items():
        (folder / key).write_bytes(os.urandom(size))
    return folder


@dataclass(frozen=True)
class HeldStore:
    """A bucket and the proxy before it; `OBJECTS` go to the prefix `copy/`.

    Attributes:
        client: past the proxy.
        source: the folder that is copied.
    """

    client: S3Client
    proxy: FaultProxy
    bucket: str
    source: Path

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{_PREFIX}"

    # -- what was sent

    def puts(self) -> list[Exchange]:
        """Of data, not of journals."""
        return [
            each
            for each in list(self.proxy.log.exchanges)
            if each.written_key and ".skyplane/" not in each.key
        ]

    def acknowledged(self) -> Counter[str]:
        """Object or part -> how often the store has said that it is durable."""
        return Counter(each.target for each in self.puts() if each.store_status == 200)

    def sent_again(self) -> dict[str, int]:
        """Acknowledged writes by target, where there was more than one."""
        return {target: count for target, count in self.acknowledged().items() if count > 1}

    def require_sent_once(self) -> None:
        """Every byte of every object was PUT, and none twice."""
        sent: Counter[str] = Counter()
        for each in self.puts():
            sent[self._name(each)] += each.request_bytes
        wrong = [
            each for each in self.puts() if sent[self._name(each)] != OBJECTS[self._name(each)]
        ]
        assert not wrong, "\n".join(map(str, wrong))
        assert set(sent) == set(OBJECTS)

    def _name(self, exchange: Exchange) -> str:
        return exchange.key.removeprefix(f"{self.bucket}/{_PREFIX}")

    def held(self) -> int:
        """Parts that were held so far."""
        return sum(each.fault == "hold" for each in self.puts())

    def wait_until_half_way(self) -> None:
        """So many parts are durable, and others are on their way."""
        wait_for(
            lambda: sum("partNumber" in target for target in self.acknowledged()) >= PARTS_BEFORE,
            "parts at the store",
        )
        wait_for(self.held, "a part that is held")

    def refuse(self) -> None:
        refuse(self.proxy)

    def take(self) -> None:
        take(self.proxy)

    # -- what is there

    def is_whole(self) -> bool:
        return all(
            self.client.get_object(Bucket=self.bucket, Key=_PREFIX + key)["Body"].read()
            == (self.source / key).read_bytes()
            for key in OBJECTS
        )

    def keys(self) -> set[str]:
        """All keys of the bucket, journals among them, without the prefix."""
        rows = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return {row["Key"].removeprefix(_PREFIX) for row in rows}

    def journalled(self) -> set[str]:
        """Objects that the newest journal names as done."""
        journals = [key for key in self.keys() if key.startswith(".skyplane/jobs/")]
        if not journals:
            return set()
        answer = self.client.get_object(Bucket=self.bucket, Key=_PREFIX + max(journals))
        return {row.key.removeprefix(_PREFIX) for row in decode_journal(answer["Body"].read()).done}

    def open_uploads(self) -> list[str]:
        uploads = self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [upload["Key"] for upload in uploads]


@contextmanager
def held_store(server: versitygw.Server, bucket: str, source: Path) -> Iterator[HeldStore]:
    """A bucket of its own on the server, behind a proxy of its own."""
    client = boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
    )
    client.create_bucket(Bucket=bucket)
    rule = Rule("hold", method="PUT", target="partNumber", nth=PARTS_BEFORE + 1, times=0)
    with running(server.url, [rule]) as proxy:
        yield HeldStore(client, proxy, bucket, source)
