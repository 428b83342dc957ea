"""Every rule of a job is in all faces, in the lead's specification, and in the selection."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal, get_type_hints

import pytest

from skyplane_gateway.config import JobRules, TransferSpec, says
from skyplane_gateway.selection import SelectionRule
from skyplane_orchestration.cli.arguments import Parser, add_rules
from skyplane_orchestration.cli.main import build_parser
from skyplane_orchestration.dagster import JobOptions
from skyplane_orchestration.dagster.components import TransferModel
from skyplane_orchestration.model.flat_job import flat_fields
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.operators.job_arguments import TYPES


@pytest.mark.parametrize("name", [one.name for one in fields(JobRules)])
def test_every_face_has_a_rule(name: str) -> None:
    for kind in (TransferJob, TransferSpec, SelectionRule):
        assert name in {one.name for one in fields(kind)}, kind
    command = build_parser("cp").parse_args(["cp", "s3://a/b", "s3://c/d"])
    assert hasattr(command, name)
    assert name in flat_fields()
    assert name in TransferModel.model_fields
    assert name in TYPES


@dataclass(frozen=True, kw_only=True)
class MoreRules(JobRules):
    """A copy with two more fields."""

    on_moon: Literal["wait", "go"] = field(default="wait", metadata=says("what to do at night"))
    allow_moon: bool = field(default=False, metadata=says("succeed at night"))


def test_a_rule_that_says_what_it_does_is_an_option_of_the_command() -> None:
    parser = Parser()
    add_rules(parser, MoreRules)
    assert parser.parse_args([]).on_moon == "wait"
    found = parser.parse_args(["--on-moon", "go", "--allow-moon", "--on-illegal-key", "skip"])
    assert (found.on_moon, found.allow_moon, found.on_illegal_key) == ("go", True, "skip")


def test_the_arguments_of_an_asset_are_the_fields_of_a_job() -> None:
    ends = {"source", "destination"}
    assert set(get_type_hints(JobOptions)) == {one.name for one in fields(TransferJob)} - ends
