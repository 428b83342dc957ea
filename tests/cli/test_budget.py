"""What a transfer may cost, as verbs that make no plan are told."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any, cast

import pytest

from skyplane_orchestration.cli.arguments import Parser
from skyplane_orchestration.cli.commands import resume, transfer
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob


class Moved(Exception):
    """Enough is known."""


def parsed(verb: Any, *words: str) -> argparse.Namespace:
    parser = Parser(prog="x")
    verb.add(parser.add_subparsers())
    return parser.parse_args([verb.__name__.rpartition(".")[2], *words])


@pytest.mark.parametrize(("words", "most_usd"), [((), None), (("--max-job-usd", "2.5"), 2.5)])
def test_a_transfer_is_stopped_at_what_was_said(
    words: tuple[str, ...], most_usd: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[TransferJob] = []

    def move(client: Any, job: TransferJob, *more: Any) -> None:
        jobs.append(job)
        raise Moved

    for name, stand_in in {
        "read_fleet": lambda path: SimpleNamespace(key="ab" * 16),
        "open_client": lambda options, run: None,
        "check_destination": lambda client, job: None,
        "_move": move,
    }.items():
        monkeypatch.setattr(transfer, name, stand_in)
    options = parsed(transfer, "s3://a/", "s3://b/", "-r", "--fleet", "f.json", *words)
    with pytest.raises(Moved):
        transfer.run(options, cast(Console, None))
    assert jobs[0].policy.max_job_usd == most_usd


def test_whoever_resumes_says_it_anew() -> None:
    assert parsed(resume, "word").max_job_usd is None
    assert parsed(resume, "word", "--max-job-usd", "7").max_job_usd == 7.0
    with pytest.raises(ConfigurationInvalid, match="max-job-usd"):
        parsed(resume, "word", "--max-job-usd", "0")
