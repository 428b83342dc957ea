"""What a transfer left at its destination, and no gateway could remove."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.transfer.samples import JOB

from skyplane_orchestration.errors import CredentialsExpired
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.recovery.destination_cleanup import abort_uploads
from skyplane_orchestration.security.store_credentials import CredentialSources

UPLOADS = ({"key": "a", "upload_id": "1"}, {"key": "b", "upload_id": "2"})


def test_an_orchestrator_that_cannot_open_the_destination_only_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects are there, and only the gateways have credentials for the destination."""

    def expired(self: CredentialSources, location: Location) -> None:
        raise CredentialsExpired("the token has expired")

    monkeypatch.setattr(CredentialSources, "resolve", expired)
    job = replace(JOB, destination=Location(f"file://{tmp_path}/"))
    (first, second) = abort_uploads(job, UPLOADS, CredentialSources())
    assert "upload 1 of 'a' stays open" in first
    assert "upload 2 of 'b' stays open" in second
    assert "the token has expired" in first
