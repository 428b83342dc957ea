"""Every rule of a job is in all faces, in the lead's specification, and in the selection."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

import skyplane_gateway
import skyplane_orchestration
from skyplane_gateway.common.job_options import JobOptions
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_orchestration.cli.main import build_parser
from skyplane_orchestration.dagster import JobArguments
from skyplane_orchestration.dagster.components import TransferModel
from skyplane_orchestration.model.flat_job import flat_fields
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.operators.job_arguments import TYPES


@pytest.mark.parametrize("name", [one.name for one in fields(JobOptions)])
def test_every_face_has_a_rule(name: str) -> None:
    for kind in (TransferJob, TransferSpec, SelectionRule):
        assert name in {one.name for one in fields(kind)}, kind
    command = build_parser("cp").parse_args(["cp", "s3://a/b", "s3://c/d"])
    assert hasattr(command, name)
    assert name in flat_fields()
    assert name in TransferModel.model_fields
    assert name in TYPES


#: Two more fields, the line of the asset's keywords, and what asks each face for them.
_FIELDS = """    on_moon: IllegalKeyRule = field(default="fail", metadata=rule_metadata("by night"))
    allow_moon: bool = field(default=False, metadata=rule_metadata("succeed at night"))
"""
_KEYWORDS = """    on_moon: IllegalKeyRule
    allow_moon: bool
"""
_ASK = """
from skyplane_orchestration.cli.job_from_options import job_from
from skyplane_orchestration.cli.main import build_parser
from skyplane_orchestration.dagster import JobArguments, build_skyplane_transfer_asset
from skyplane_orchestration.dagster.components import TransferModel
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.operators import SkyplaneTransferOperator

given = {"on_moon": "escape", "allow_moon": True}
ends = {"source": "s3://a/", "destination": "s3://b/"}
urls = {f"{end}_url": url for end, url in ends.items()}
words = "cp s3://a/ s3://b/ --on-moon escape --allow-moon".split()
jobs = [
    job_from(build_parser("cp").parse_args(words)),
    SkyplaneTransferOperator(task_id="t", **urls, **{**given, "allow_moon": "t"}).transfer_job(),
    TransferModel(name="x", **urls, **given).job(),
]
jobs += [TransferJob.from_dict(jobs[0].to_dict())]
assert all((job.on_moon, job.allow_moon) == ("escape", True) for job in jobs), jobs
assert {*given} <= {*SkyplaneTransferOperator.template_fields} & {*JobArguments.__annotations__}
build_skyplane_transfer_asset("x", **ends, **given)
"""


@pytest.mark.long
def test_a_rule_that_is_added_to_a_copy_is_in_all_faces(tmp_path: Path) -> None:
    for package in (skyplane_gateway, skyplane_orchestration):
        folder = Path(package.__path__[0])
        shutil.copytree(folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("*.pyc"))
    for name, after, more in (
        ("skyplane_gateway/common/job_options.py", "class JobOptions:", _FIELDS),
        ("skyplane_orchestration/dagster/job_arguments.py", "class JobArguments(", _KEYWORDS),
    ):
        path = tmp_path / name
        before, begin, rest = path.read_text().partition(after)
        first = "    recursive: bool"
        path.write_text(before + begin + rest.replace(first, more + first, 1))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _ASK], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_arguments_of_an_asset_are_the_fields_of_a_job() -> None:
    ends = {"source", "destination"}
    assert set(get_type_hints(JobArguments)) == {one.name for one in fields(TransferJob)} - ends
