from __future__ import annotations

from dataclasses import replace

import pytest
from tests.transfer.samples import JOB, A, B, R

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import Policy
from skyplane_orchestration.transfer.planning import require_known_regions, summed


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
