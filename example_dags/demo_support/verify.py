"""Checks that the destination has all objects, byte for byte, and nothing else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from example_dags.demo_support.dataset import MARKER, DataSet
from example_dags.demo_support.servers import DemoSite, End

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_PROC: Final = Path("/proc")

#: A successful write in the log of an S3 server.
_WRITE: Final = re.compile(r'"(?:PUT|POST) (?P<path>\S+) HTTP/[\d.]+" 2\d\d ')


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of the check.

    Args:
        differences: one line per problem; empty if there is none.
    """

    objects: int
    size_bytes: int
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"verified: {self.objects} objects, {self.size_bytes} bytes, "
            f"{len(self.differences)} differences"
        )


def verify(data: DataSet, end: End) -> Verification:
    """Read all objects at the destination and compare them with the data set."""
    client = end.client()
    found = set(_listed(client, end.bucket))
    wanted = {end.prefix + key: key for key in data.sizes}
    differences = [f"missing: {key}" for key in sorted(set(wanted) - found)]
    differences += [f"unexpected: {key}" for key in sorted(found - set(wanted))]
    size_bytes = 0
    for full, key in wanted.items():
        if full in found:
            body = client.get_object(Bucket=end.bucket, Key=full)["Body"].read()
            size_bytes += len(body)
            if hashlib.sha256(body).hexdigest() != data.digest(key):
                differences.append(f"different content: {full}")
    differences += _late_arrivals(end)
    uploads = client.list_multipart_uploads(Bucket=end.bucket).get("Uploads", [])
    differences += [f"an upload was left open: {upload['Key']}" for upload in uploads]
    return Verification(len(found & set(wanted)), size_bytes, tuple(differences))


def _listed(client: S3Client, bucket: str) -> Iterator[str]:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for row in page.get("Contents", []):
            yield row["Key"]


def _late_arrivals(end: End) -> list[str]:
    """Objects that were written after the marker that announces them.

    The order is taken from the server's log, since modification times are whole seconds.
    """
    requests = _WRITE.finditer(end.log_path.read_text(encoding="utf-8", errors="replace"))
    written = [unquote(request["path"].partition("?")[0]) for request in requests]
    below = f"/{end.bucket}/{end.prefix}"
    if below + MARKER not in written:
        return []
    last = len(written) - 1 - written[::-1].index(below + MARKER)
    # The transfer deletes its journal at its end.
    journals = below + ".skyplane/"
    late = sorted(
        {
            path
            for path in written[last + 1 :]
            if path.startswith(below) and not path.startswith(journals)
        }
    )
    return [f"written after {MARKER}: {path.removeprefix(below)}" for path in late]


def corrupt_one(data: DataSet, end: End) -> str:
    """Flip one bit of one object at the destination; its key."""
    key = end.prefix + next(iter(data.sizes))
    client = end.client()
    body = bytearray(client.get_object(Bucket=end.bucket, Key=key)["Body"].read())
    body[len(body) // 2] ^= 1
    client.put_object(Bucket=end.bucket, Key=key, Body=bytes(body))
    return key


def relayed_share(result: Mapping[str, Any], source: str, destination: str) -> float:
    """The share of the delivered bytes that came through a relay, 0 to 1.

    Args:
        result: a `TransferResult` as a dict.
        source: its region tag. destination: its region tag.
    """
    arriving = [edge for edge in result["edges"] if edge["dst"] == destination]
    total = sum(edge["sent_bytes"] for edge in arriving)
    relayed = sum(edge["sent_bytes"] for edge in arriving if edge["src"] != source)
    return relayed / total if total else 0.0


def left_running(site: DemoSite, fleet_keys: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Processes of the demo's fleets that still exist: `pid command line`."""
    marks = (str(site.run_root), *fleet_keys)
    return tuple(
        f"{pid} {line}"
        for pid, line in _command_lines()
        if "skyplane_gateway" in line and any(mark in line for mark in marks)
    )


def _command_lines() -> Iterator[tuple[int, str]]:
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                raw = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # The process has ended, or belongs to another user.
            yield int(entry.name), raw.replace(b"\0", b" ").decode(errors="replace").strip()
