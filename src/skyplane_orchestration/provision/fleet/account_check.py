"""What a cloud tells of an account, for `doctor`: credentials, permissions, and quotas in use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from skyplane_orchestration.errors import CloudAccessDenied, ConfigurationInvalid, SkyplaneError
from skyplane_orchestration.model.region_quota import QuotaUse
from skyplane_orchestration.provision.fleet.ingress_rules import odd_ranges
from skyplane_orchestration.provision.fleet.machines import Machines
from skyplane_orchestration.provision.fleet.multi_cloud import check_cloud
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.fleet.worker_reach import worker_findings
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import Finding


@dataclass(frozen=True, slots=True)
class CloudReport:
    """What was found.

    Args:
        findings: of the check of the cloud, then one for each quota.
        quotas: the same quotas, as numbers.
    """

    findings: tuple[Finding, ...]
    quotas: tuple[QuotaUse, ...]


def report_on(cloud: Machines, deployment: str, options: InstanceOptions) -> CloudReport:
    """Check a cloud, and read the quotas of its regions. Launches nothing.

    Without credentials it reads no quota.
    """
    checked, worker = check_cloud(cloud, deployment), worker_findings((cloud,), options)
    has_credentials = len(checked) > 1 or checked[0].is_ok
    checked = (*odd_ranges(options.control_cidrs), *checked, *worker)
    if not has_credentials:
        return CloudReport(checked, ())
    try:
        regions = cloud.regions()
    except SkyplaneError as error:
        return CloudReport((*checked, Finding(f"{cloud.name} quotas", False, str(error))), ())
    findings, quotas = _quotas(cloud, regions)
    return CloudReport((*checked, *findings), quotas)


def credentials_finding(cloud: str, valid: str, error: SkyplaneError | None) -> Finding:
    """The finding about credentials by the first answer; not ok if no other call can succeed.

    Args:
        valid: what to say of valid ones.
        error: that of the first call; None if it has succeeded.
    """
    name = f"{cloud} credentials"
    # Of a connection, or of a key file.
    if isinstance(error, ConfigurationInvalid):
        return Finding(name, False, str(error))
    if isinstance(error, CloudAccessDenied) and error.of_credentials:
        return Finding(name, False, str(error))
    if error is None or isinstance(error, CloudAccessDenied):
        return Finding(name, True, valid)
    return Finding(name, True, f"not known: {error}", is_warning=True)


def unknown_regions(cloud: str, named: Collection[str], usable: Collection[str]) -> list[Finding]:
    """One finding for all regions that options name and the account does not have, if there are."""
    lacking = ", ".join(sorted(set(named) - set(usable)))
    text = f"the account does not have {lacking}; correct the settings of {cloud} that name regions"
    return [Finding(f"{cloud} regions", False, text)] if lacking else []


def outcomes(cloud: str, where: str, attempts: Sequence[Callable[[], object]]) -> list[Finding]:
    """What attempts find, each finding once; the failure of one hides no other.

    All are made at once, since each waits long where the cloud does not answer.

    Args:
        cloud: `aws`.
        where: region tag, or empty; names the findings that are not about permissions.
        attempts: each makes calls, and may return a Finding.
    """

    def outcome(attempt: Callable[[], object]) -> Finding | None:
        try:
            found = attempt()
        except CloudAccessDenied as error:
            return Finding(f"{cloud} permissions", False, str(error))
        except SkyplaneError as error:
            return Finding(f"{cloud} {where}".rstrip(), False, str(error))
        return found if isinstance(found, Finding) else None

    found = in_parallel(attempts, outcome)
    return [one for one in dict.fromkeys(found) if one is not None]


def _quotas(
    cloud: Machines, regions: Sequence[str]
) -> tuple[tuple[Finding, ...], tuple[QuotaUse, ...]]:
    """A region whose quotas cannot be read does not hide those of the others."""
    try:
        uses = cloud.quota_uses(regions)
    except SkyplaneError as error:
        if len(regions) == 1:
            return (Finding(f"{regions[0]} quotas", False, str(error)),), ()
        each = in_parallel(regions, lambda region: _quotas(cloud, (region,)))
        findings = tuple(finding for rows, _ in each for finding in rows)
        # A quota of all regions is told with each of them.
        return tuple(dict.fromkeys(findings)), tuple(
            dict.fromkeys(use for _, rows in each for use in rows)
        )
    known = {use.region for use in uses}
    silent = [
        Finding(f"{region} quotas", False, "the cloud tells none; check the name of the region")
        for region in regions
        if region not in known
    ]
    return (*map(_finding, uses), *silent), uses


def _finding(use: QuotaUse) -> Finding:
    name = f"{use.region} {use.name}"
    if use.limit is None:
        return Finding(name, True, f"{use.what}: limit not told, {use.used} used")
    numbers = f"limit {use.limit}, {use.used} used, {use.free} free"
    return Finding(name, True, f"{use.what}: {numbers}", is_warning=not use.free)
