from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.transfer.samples import PLAN, A, B

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import MaximizeThroughput, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.resume_handle import PREFIX, RESUME_TTL_S, ResumeHandle

HANDLE = ResumeHandle(
    job=TransferJob(
        Location("s3://src/p/", A, credential_ref="profile:reader"),
        Location("s3://dst/q/", B),
        MaximizeThroughput(max_usd_per_gb=0.1),
        include=("*.é",),
    ),
    plan=PLAN,
    fleet_key="cd" * 16,
    generation=2,
    deployment="prod",
    transfer_key="ab" * 16,
    epoch=3,
    expires_unix_s=1000.0,
)


def test_a_handle_is_one_word_and_complete() -> None:
    text = HANDLE.to_text()
    assert text.split() == [text]
    assert ResumeHandle.from_text(f" {text}\n") == HANDLE


def test_a_handle_expires() -> None:
    assert RESUME_TTL_S == 86_400
    HANDLE.require_live(999.9)
    with pytest.raises(ConfigurationInvalid, match=r"expired 1\.0 h ago.*run it again"):
        HANDLE.require_live(1000.0 + 3600)


def test_a_resume_may_have_another_budget() -> None:
    dearer = HANDLE.with_budget(7.5)
    assert dearer.job.policy == replace(HANDLE.job.policy, max_job_usd=7.5)
    assert replace(dearer, job=HANDLE.job) == HANDLE
    with pytest.raises(ConfigurationInvalid, match="max_job_usd"):
        HANDLE.with_budget(0.0)


def pack(document: Any) -> str:
    return PREFIX + base64.urlsafe_b64encode(zlib.compress(json.dumps(document).encode())).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "elsewhere",
        PREFIX,
        PREFIX + "!!!",
        PREFIX + base64.urlsafe_b64encode(b"not packed").decode(),
        HANDLE.to_text()[:-40],
        pack([]),
        pack({}),
        pack({**HANDLE.to_dict(), "schema_version": 2}),
        pack({**HANDLE.to_dict(), "epoch": "three"}),
        pack({**HANDLE.to_dict(), "job": []}),
        pack({**HANDLE.to_dict(), "more": 1}),
        # A megabyte of nothing in a few bytes.
        PREFIX + base64.urlsafe_b64encode(zlib.compress(b" " * (2 << 20))).decode(),
    ],
)
def test_invalid_handles_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationInvalid):
        ResumeHandle.from_text(text)


@given(st.text())
def test_any_text_is_a_location_or_refused(text: str) -> None:
    with pytest.raises(ConfigurationInvalid):
        ResumeHandle.from_text(PREFIX + text)


def test_no_secret_is_in_it() -> None:
    """Only references to credentials."""
    document = json.dumps(HANDLE.to_dict())
    assert "profile:reader" in document
    assert replace(HANDLE).to_dict().keys() == {
        "schema_version",
        "job",
        "plan",
        "fleet_key",
        "generation",
        "deployment",
        "transfer_key",
        "epoch",
        "expires_unix_s",
    }
