"""A moto server that tells when uploads began; moto itself says 2010 of each.

    python -m tests.faults.moto_server -H 127.0.0.1 -p PORT

A transfer that goes on aborts an upload of which it does not know the id only if it began
in the time in which its own request can have begun it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.s3 import models, responses
from moto.server import main

_began: dict[str, str] = {}
_make_upload = models.FakeMultipart.__init__


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
