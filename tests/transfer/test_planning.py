from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.transfer.samples import JOB, A, B, R

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import Policy, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.transfer.planning import measured, require_known_regions, summed


def test_one_plan_has_the_volume_of_all_jobs() -> None:
    jobs = [replace(JOB, volume_gb=size, objects=count) for size, count in ((1.5, 2), (0.5, 3))]
    # A job without objects has no volume.
    found = summed([*jobs, replace(JOB, volume_gb=None, objects=0)])
    assert (found.volume_gb, found.objects) == (2.0, 5)
    assert (found.source, found.destination) == (JOB.source, JOB.destination)


def test_the_regions_must_be_the_same() -> None:
    other = replace(JOB, destination=JOB.destination.at(R))
    with pytest.raises(ConfigurationInvalid, match=f"{A} to {R}, {A} to {B}"):
        summed([JOB, other])


def test_a_policy_may_name_regions_that_only_other_grids_have() -> None:
    """The policy of a team serves grids of a few clouds, too."""
    tags = ("aws:eu-west-1", "lab:one")
    require_known_regions(Policy(("aws:eu-*", "lab:*"), ("azure:*", "gcp:us-east1")), tags)
    for wrong in ("azrue:*", "lab:two", "aws:eu-weast-1"):
        with pytest.raises(ConfigurationInvalid, match="matches no region of the grid"):
            require_known_regions(Policy(exclude_regions=(wrong,)), tags)


def test_empty_objects_have_a_volume(tmp_path: Path) -> None:
    """Without one a plan is of as many instances as the quotas allow, for nothing to send."""
    source = tmp_path / "source"
    source.mkdir()
    here, there = (Location(f"file://{path}/", A) for path in (source, tmp_path / "to"))
    job, credentials = TransferJob(here, there, allow_empty=True), CredentialSources()
    assert measured(job, credentials)[0].volume_gb is None
    (source / "empty").touch()
    assert measured(job, credentials)[0].volume_gb == pytest.approx(1e-9)
