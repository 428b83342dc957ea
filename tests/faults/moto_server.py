"""A moto server that tells when uploads began; moto itself says 2010 of each.

    python -m tests.faults.moto_server -H 127.0.0.1 -p PORT
    with running() as url: ...

A transfer that goes on aborts an upload of which it does not know the id only if it began
in the time in which its own request can have begun it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.s3 import models, responses
from moto.server import ThreadedMotoServer, main

_began: dict[str, str] = {}
_make_upload = models.FakeMultipart.__init__


@contextmanager
def running() -> Iterator[str]:
    """The URL of a server in this process.

    All servers of a process share their buckets, so those that came since are forgotten at the end.
    In us-east-1 S3 takes the creation of a bucket that is already yours, wherever it is.
    """
    tell_when_uploads_began()
    before = set(models.s3_backends.bucket_accounts)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        for name in set(models.s3_backends.bucket_accounts) - before:
            partition, account = models.s3_backends.bucket_accounts.pop(name)
            models.s3_backends[account][partition].buckets.pop(name, None)


def tell_when_uploads_began() -> None:
    """Patch moto in this process; once is enough, and more does no harm."""
    setattr(models.FakeMultipart, "__init__", _noted)  # noqa: B010
    setattr(responses, "ActionResult", _told)  # noqa: B010


def _noted(upload: models.FakeMultipart, *arguments: Any, **more: Any) -> None:
    _make_upload(upload, *arguments, **more)
    _began[upload.id] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _told(result: Any) -> ActionResult:
    for row in result.get("Uploads", ()) if isinstance(result, dict) else ():
        row["Initiated"] = _began[row["UploadId"]]
    return ActionResult(result)


if __name__ == "__main__":
    tell_when_uploads_began()
    main()
