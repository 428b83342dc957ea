from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.transfer.samples import GB, JOB, A, B, R

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.job import Policy, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import RefusedLaunch
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.source_contents import SourceContents
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import preflight
from skyplane_orchestration.transfer.planning import (
    measured,
    plan_job,
    plan_job_again,
    plan_job_to_all,
    require_known_regions,
    summed,
)


def test_one_plan_has_the_volume_of_all_jobs() -> None:
    jobs = [replace(JOB, volume_gb=size, objects=count) for size, count in ((1.5, 2), (0.5, 3))]
    # A job without objects has no volume.
    found = summed([*jobs, replace(JOB, volume_gb=None, objects=0)])
    assert (found.volume_gb, found.objects) == (2.0, 5)
    assert (found.source, found.destination) == (JOB.source, JOB.destination)


def test_the_contents_of_all_jobs_are_shares_of_their_sum() -> None:
    """Of jobs of 3 GB, half of it in one class, and of 1 GB, all of it in two."""
    contents = (
        SourceContents(0.5, {"STANDARD_IA": 0.5}),
        SourceContents(0.4, {"STANDARD_IA": 0.2, "GLACIER_IR": 0.8}),
    )
    jobs = [
        replace(JOB, volume_gb=size, contents=one)
        for one, size in zip(contents, (3.0, 1.0), strict=True)
    ]
    found = summed(jobs).contents
    assert found.largest == pytest.approx(0.375)
    assert found.classes == pytest.approx({"STANDARD_IA": 0.425, "GLACIER_IR": 0.2})


CONTENTS = SourceContents(0.1, {"STANDARD_IA": 0.5})


class Provisioner:
    """Knows nothing of its account."""

    name, has_internal_addresses, provision_s = "test", True, dict[str, float]()

    def quotas(self, _: str) -> tuple[RegionQuota, ...]:
        return ()


def test_every_plan_for_a_listed_job_counts_what_the_listing_has_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shipped = load_grid()
    volume = preflight.Volume(100, 100 * GB, is_capped=False, archived=0, contents=CONTENTS)
    monkeypatch.setattr(preflight, "measure", lambda *_: volume)
    nobody, provisioner = CredentialSources(), cast(Any, Provisioner())
    plan = plan_job(shipped, JOB, nobody, provisioner)
    refused = RefusedLaunch(R, "Standard_D32_v5", 0, is_quota=False)
    again = plan_job_again(shipped, JOB, plan, refused, provisioner)
    to_all = plan_job_to_all(
        shipped, JOB, [Location("s3://far/", "aws:eu-west-1")], nobody, provisioner
    )
    together = plan_job(shipped, summed([measured(JOB, nobody)[0]] * 2), nobody, provisioner)
    usd = 50e9 / 2**30 * 0.01
    for found, times in ((plan, 1), (again, 1), (to_all, 1), (together, 2)):
        assert found.cost.other_usd["retrieval"] == pytest.approx(usd * times)
    # What a user says about the volume is not looked up.
    given = plan_job(shipped, replace(JOB, volume_gb=100.0, objects=100), nobody, provisioner)
    assert "retrieval" not in given.cost.other_usd


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
