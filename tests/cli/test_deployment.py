"""The name of a deployment that no option gives."""

from __future__ import annotations

import argparse
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skyplane_orchestration.cli.arguments import settle_deployment
from skyplane_orchestration.cli.main import build_parser
from skyplane_orchestration.errors import ConfigurationInvalid

KEPT = "skyplane-orch/deployment"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SKYPLANE_DEPLOYMENT", raising=False)
    return tmp_path


def settled(*more: str) -> str:
    options = build_parser("sweep").parse_args(["sweep", *more])
    settle_deployment(options)
    return str(options.deployment)


def test_commands_on_clouds_have_a_name_that_is_made_once(home: Path) -> None:
    made = settled("--provisioner", "aws")
    assert made.startswith("cli-")
    assert len(made) == len("cli-") + 16
    assert settled("--provisioner", "cloud") == made
    assert stat.S_IMODE((home / KEPT).stat().st_mode) == 0o600


def test_two_commands_at_once_agree() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: settled("--provisioner", "gcp"), range(16)))
    assert len(found) == 1


@pytest.mark.parametrize("where", [[], ["--provisioner", "ssh", "--hosts", "h.yaml"]])
def test_other_fleets_have_the_usual_name(home: Path, where: list[str]) -> None:
    assert settled(*where) == "local"
    assert not (home / KEPT).exists()


def test_a_name_that_is_given_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settled("--provisioner", "aws", "--deployment", "local") == "local"
    monkeypatch.setenv("SKYPLANE_DEPLOYMENT", "prod-eu")
    assert settled("--provisioner", "aws") == "prod-eu"
    assert not (home / KEPT).exists()


def test_a_check_of_a_cloud_has_it_too() -> None:
    options = build_parser("doctor").parse_args(["doctor", "--cloud", "aws"])
    settle_deployment(options)
    assert options.deployment == settled("--provisioner", "aws")


def test_a_file_that_cannot_be_used_is_named(home: Path) -> None:
    (home / "skyplane-orch").mkdir()
    (home / KEPT).write_text("\n")
    (home / KEPT).chmod(0o600)
    with pytest.raises(ConfigurationInvalid, match=r"skyplane-orch/deployment is empty; .*--dep"):
        settled("--provisioner", "aws")
    (home / KEPT).chmod(0o644)
    with pytest.raises(ConfigurationInvalid, match="has mode 0644"):
        settled("--provisioner", "aws")


def test_commands_without_fleets_have_none() -> None:
    settle_deployment(argparse.Namespace())
