"""The highest cost of a transfer that is made without a plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.fake_client import FakeClient

from skyplane_orchestration.cli.commands import transfer
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.main import build_parser
from skyplane_orchestration.model.job import TransferJob


@pytest.mark.parametrize(("words", "most_usd"), [((), None), (("--max-job-usd", "2.5"), 2.5)])
def test_max_job_usd_of_transfer_reaches_the_policy(
    words: tuple[str, ...], most_usd: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[TransferJob] = []

    def move(client: Any, job: TransferJob, *more: Any) -> None:
        jobs.append(job)
        raise KeyboardInterrupt

    for name, stand_in in {
        "read_fleet": lambda path: SimpleNamespace(key="ab" * 16),
        "open_client": lambda options, run: FakeClient(),
        "require_writable": lambda job: None,
        "_move": move,
    }.items():
        monkeypatch.setattr(transfer, name, stand_in)
    words = ("transfer", "s3://a/", "s3://b/", "-r", "--fleet", "f.json", *words)
    options = build_parser().parse_args(words)
    with pytest.raises(KeyboardInterrupt):
        transfer.run(options, cast(Console, None))
    assert jobs[0].policy.max_job_usd == most_usd
