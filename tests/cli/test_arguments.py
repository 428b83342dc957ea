"""From words on a command line to a job."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

import pytest

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.job_from_options import job_from
from skyplane_orchestration.cli.option_parser import Parser
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import (
    Limits,
    Policy,
)

REGIONS = ("aws:eu-west-1", "aws:us-east-1", "gcp:europe-west1")


def parsed(text: str) -> argparse.Namespace:
    parser = Parser(prog="x")
    arguments.add_ends(parser, "a place")
    planner_options.add_objective(parser)
    planner_options.add_limits(parser, launches=True)
    arguments.add_selection(parser)
    return parser.parse_args(["s3://a/b/", "s3://c/d/", *text.split()])


def test_options_that_are_repeated_add_to_each_other() -> None:
    options = parsed(
        "--include *.csv --include *.json --exclude tmp/* --exclude x,y"
        " --instance-type aws=m5.large --instance-type gcp=n2-standard-4"
    )
    job = job_from(options)
    assert (job.include, job.exclude) == (("*.csv", "*.json"), ("tmp/*", "x,y"))
    limits = planner_options.limits_from(options)
    assert limits.instance_types == {"aws": "m5.large", "gcp": "n2-standard-4"}
    assert planner_options.limits_from(parsed("")) == Limits()


def test_the_rule_for_refused_launches_is_for_subcommands_that_launch() -> None:
    parser = Parser(prog="x")
    planner_options.add_limits(parser, launches=True)
    given = parser.parse_args(["--on-no-capacity", "fail"])
    assert planner_options.policy_from(given, REGIONS).on_no_capacity == "fail"
    assert planner_options.policy_from(parser.parse_args([]), REGIONS) == Policy()
    planning = Parser(prog="x")
    planner_options.add_limits(planning)
    with pytest.raises(ConfigurationInvalid, match="--on-no-capacity"):
        planning.parse_args(["--on-no-capacity", "fail"])


def test_a_policy_that_matches_no_region_is_refused() -> None:
    options = parsed("--exclude-regions aws:us-east-1,gcp:* --allow-regions aws:eu-*")
    assert planner_options.policy_from(options, REGIONS) == Policy(
        ("aws:eu-*",), ("aws:us-east-1", "gcp:*")
    )
    with pytest.raises(ConfigurationInvalid, match="did you mean aws:us-east-1"):
        planner_options.policy_from(parsed("--exclude-regions aws:us-est-1"), REGIONS)
    with pytest.raises(ConfigurationInvalid, match="to skip objects, use exclude"):
        planner_options.policy_from(parsed("--exclude-regions *.tmp"), REGIONS)
    with pytest.raises(ConfigurationInvalid, match="'' names nothing"):
        parsed("--exclude-regions=")


def test_the_list_of_keys_can_come_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("größe\n".encode())))
    assert job_from(parsed("-r --files-from -")).files_from == ("größe",)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n")))
    with pytest.raises(ConfigurationInvalid, match="--files-from: '-' is not UTF-8 text"):
        parsed("-r --files-from -")


def test_a_raw_list_of_keys_has_its_lines_as_they_are(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes("\ufeff#a\n b \r\n/c\n".encode())
    raw = job_from(parsed(f"-r --files-from-raw {keys}")).files_from
    assert raw == tuple(sorted(("#a", " b ", "/c")))
    assert job_from(parsed(f"-r --files-from {keys}")).files_from == ("b", "c")
    with pytest.raises(ConfigurationInvalid, match="not allowed with argument --files-from"):
        parsed(f"--files-from {keys} --files-from-raw {keys}")


def test_a_list_of_keys_that_is_given_again_adds_to_the_first(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{name}\nboth\n")
    for option in ("--files-from", "--files-from-raw"):
        text = f"-r {option} {tmp_path}/one {option} {tmp_path}/two"
        assert job_from(parsed(text)).files_from == ("both", "one", "two")


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("#a\nb\n", "line 1 is read as"),
        ("a\n b\nc\n#d\n", "line 2 and others are read as"),
        ("# a\nb\n", ""),
    ],
)
def test_lines_that_may_be_keys_are_not_dropped_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, warning: str
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(text)
    parsed(f"-r --files-from-raw {keys}")
    assert capsys.readouterr().err == ""
    parsed(f"-r --files-from {keys}")
    said = capsys.readouterr().err
    assert said.startswith(warning and f"skyplane-orch: warning: '{keys}': {warning}")
    assert said.count("\n") == bool(warning)
