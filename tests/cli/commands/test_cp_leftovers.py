"""What `cp` says when it cannot find out whether a failed copy left a fleet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from skyplane_orchestration.cli.commands import cp
from skyplane_orchestration.cli.main import build_parser
from skyplane_orchestration.cli.progress import TransferInterrupted
from skyplane_orchestration.errors import CloudAccessDenied, TransferFailed

WHERE = ("--provisioner", "cloud", "--clouds", "clouds.yaml", "--deployment", "prod")


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (TransferFailed("2 objects failed"), TransferFailed),
        (KeyboardInterrupt(), TransferInterrupted),
    ],
)
def test_the_error_of_a_copy_survives_a_cloud_that_cannot_be_asked(
    error: BaseException, raised: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    """The credentials expire during a copy: the resume handle must still be printed."""

    def run(*_: Any, **__: Any) -> Any:
        raise error

    def describe(key: str) -> Any:
        raise CloudAccessDenied("AWS refuses ec2:DescribeInstances (ExpiredToken)")

    client: Any = SimpleNamespace(
        identity=SimpleNamespace(fleet_key=lambda: "f1ee7"),
        provisioner=SimpleNamespace(describe=describe),
    )
    progress: Any = SimpleNamespace(
        on_fleet=None,
        on_status=None,
        has_fleet=True,
        stop=lambda: None,
        interruption=lambda: TransferInterrupted(None),
    )
    options = build_parser("cp").parse_args(["cp", "a", "b", *WHERE])
    nothing: Any = None
    job_run: Any = SimpleNamespace(run=run)
    with pytest.raises(raised):
        cp._copy(client, job_run, nothing, options, progress)
    said = capsys.readouterr().err
    assert "ExpiredToken" in said
    assert f"skyplane-orch teardown --fleet-key f1ee7 {' '.join(WHERE)}\n" in said
