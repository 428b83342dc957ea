"""`doctor`: checks that this machine can plan, start gateways and find credentials."""

from __future__ import annotations

import argparse
import importlib.util
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from skyplane_orchestration.cli import arguments, planner_options
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.exit_codes import FAILED, SUCCESS, as_bad_input
from skyplane_orchestration.cli.job_from_options import optional_job_from
from skyplane_orchestration.cli.option_parser import Subparsers
from skyplane_orchestration.errors import ConfigurationInvalid, MissingExtra, SkyplaneError
from skyplane_orchestration.model.fleet import KUBERNETES
from skyplane_orchestration.model.location import CLOUDS

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.provision.provisioner import Finding

State = Literal["ok", "warn", "fail"]

_EXTRAS: Final = {
    "aws": "boto3",
    "gcs": "google.cloud.storage",
    "gcp": "google.cloud.compute_v1",
    "azure": "azure.identity",
    "airflow": "airflow",
    "dagster": "dagster",
    "plots": "matplotlib",
    KUBERNETES: "kubernetes",
    "ssh": "paramiko",
}
#: Findings about what a machine that only plans does without.
_ONLY_FOR_COPIES: Final = frozenset({"gateway"})


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    state: State
    detail: str


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "doctor", help="check this machine, and where gateways are to run; changes nothing"
    )
    what = "with both, which credentials gateways would get for a copy"
    arguments.add_optional_ends(parser, what)
    arguments.add_gateway_credentials(parser)
    planner_options.add_grid(parser)
    parser.add_argument(
        "--speed",
        action="store_true",
        help="measure what a vCPU of this machine carries as a gateway: copies 0.5 GB of files"
        " here, in a few seconds",
    )
    group = parser.add_argument_group("cloud")
    group.add_argument(
        "--cloud",
        choices=(*CLOUDS, KUBERNETES),
        help="check this cloud only: credentials, permissions, and the quotas of its regions;"
        " with the settings of --clouds FILE, else with your own credentials, and"
        " $GOOGLE_CLOUD_PROJECT or $AZURE_SUBSCRIPTION_ID",
    )
    group.add_argument(
        "--region",
        action="append",
        default=[],
        metavar="REGION",
        help="region tag for --cloud, such as aws:us-east-1 (repeatable; default: regions of the"
        " settings, else all of the account)",
    )
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    """Exit code 1 when a check fails."""
    document: dict[str, Any] = {}
    if options.cloud:
        from skyplane_orchestration.provision.cloud_registry import open_one_cloud, read_clouds
        from skyplane_orchestration.provision.fleet.account_check import report_on
        from skyplane_orchestration.provision.fleet.options import InstanceOptions
        from skyplane_orchestration.security.store_credentials import CredentialSources

        file = options.clouds_file
        with as_bad_input():
            if options.src is not None:
                raise ConfigurationInvalid("--cloud takes no SRC and DST; leave out one of the two")
            cloud = open_one_cloud(options.cloud, file, options.region, CredentialSources())
            of_fleets = read_clouds(file).options if file else InstanceOptions()
        report = report_on(cloud, options.deployment, of_fleets)
        checks = [_of_extra(options.cloud), *map(_of_finding, report.findings)]
        document["quotas"] = [{**asdict(use), "free": use.free} for use in report.quotas]
    else:
        with as_bad_input():
            if options.region:
                raise ConfigurationInvalid("--region needs --cloud")
            job = optional_job_from(options)
            client = open_client(options)
        checks = [*_checks(client)]
        if job is not None:
            name = "credentials of gateways"
            checks += _findings(name, lambda: client.job_run(job).check_credentials())
        if options.speed:
            checks.append(_guarded("speed", lambda: _speed(client, document)))
    if console.is_json:
        console.write_json({"checks": [asdict(check) for check in checks], **document})
    else:
        from skyplane_orchestration.cli.render import table

        rows = [(check.state, check.name, check.detail) for check in checks]
        console.print(table(("", "check", "finding"), rows, wraps_last=True))
    return FAILED if any(check.state == "fail" for check in checks) else SUCCESS


def _checks(client: Client) -> Iterator[Check]:
    tested = (3, 11) <= sys.version_info[:2] <= (3, 13)
    release = sys.version.partition(" ")[0]
    yield Check("python", "ok" if tested else "warn", f"{release} ({sys.executable})")
    yield from map(_of_extra, _EXTRAS)
    yield _guarded("fleet secret", _secret)
    yield from _findings("provisioner", client.check_provisioner)
    yield _guarded("grid", lambda: _grid(client))
    yield _guarded("solver", lambda: _solver(client))
    for store, (module, find) in _CREDENTIALS.items():
        name = f"{store} credentials"
        yield _guarded(name, partial(_credentials, name, module, find))


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except SkyplaneError as error:
        return Check(name, "fail", str(error))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # A parent package is missing.


def _of_extra(extra: str) -> Check:
    module = _EXTRAS[extra]
    if _is_installed(module):
        return Check(f"extra {extra}", "ok", f"{module} is installed")
    return Check(f"extra {extra}", "warn", str(MissingExtra.of(module, extra)))


def _secret() -> Check:
    from skyplane_orchestration.security.authority import FleetSecret, default_secret_path

    path = default_secret_path()
    if not path.exists():
        return Check("fleet secret", "ok", f"{path} will be created on first use")
    FleetSecret.from_file(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    return Check("fleet secret", "ok", f"{path}, mode {mode:04o}")


def _findings(name: str, find: Callable[[], Iterable[Finding]]) -> Iterator[Check]:
    try:
        yield from map(_of_finding, find())
    except SkyplaneError as error:
        yield Check(name, "fail", str(error))


def _of_finding(finding: Finding) -> Check:
    missing: State = "warn" if finding.name in _ONLY_FOR_COPIES else "fail"
    usable: State = "warn" if finding.is_warning else "ok"
    return Check(finding.name, usable if finding.is_ok else missing, finding.text)


def _grid(client: Client) -> Check:
    grid = client.grid
    return Check("grid", "ok", f"{grid.name} of {grid.as_of}, {len(grid.tags)} regions")


def _speed(client: Client, document: dict[str, Any]) -> Check:
    """Gbit/s per vCPU by role, beside those of the grid for gateways on this machine."""
    from skyplane_orchestration.cli.own_speed import speed_with_files

    try:
        here = speed_with_files()
    except OSError as error:
        return Check("speed", "warn", f"not measured: {error}")
    document["gbps_per_vcpu"] = here
    rates = ", ".join(f"{role} {gbps:.1f}" for role, gbps in here.items())
    detail = f"Gbit/s per vCPU with files, sealed: {rates}"
    known = client.grid.instance_type("local").speed
    if known is not None:
        shipped = ", ".join(f"{role} {known.gbps(role):.1f}" for role in here)
        detail += f"; the grid has {shipped} ({known.provenance})"
    return Check("speed", "ok", detail)


def _solver(client: Client) -> Check:
    from skyplane_orchestration import planner

    grid = client.grid
    src, dst = grid.tags[:2]
    plan = planner.plan(grid, src, dst, client.default_objective)
    return Check("solver", "ok", f"{src} -> {dst} in {plan.solver.solve_s:.2f} s")


def _credentials(name: str, module: str, find: Callable[[], str]) -> Check:
    """`find` says what it found, and "" for nothing."""
    if not _is_installed(module):
        return Check(name, "warn", f"{module} is not installed")
    found = find()
    if not found:
        return Check(name, "warn", "none found; give credentials for each location")
    return Check(name, "ok", f"found {found}")


def _s3() -> str:
    from skyplane_gateway.stores import ambient_credentials

    found = ambient_credentials("s3")
    if found is None:
        return ""
    return f"{'temporary' if found.get('session_token') else 'long-lived'} credentials"


def _gcs() -> str:
    from skyplane_gateway.stores import ambient_credentials

    if os.environ.get("STORAGE_EMULATOR_HOST"):
        return "an emulator (STORAGE_EMULATOR_HOST), which needs none"
    return "an identity that gets access tokens" if ambient_credentials("gcs") else ""


def _azure() -> str:
    """The variables name an account; without one, the identity of this machine is asked for."""
    from skyplane_gateway.stores import ambient_credentials, connection_string_fields

    connection = connection_string_fields(os.environ.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    account = connection.get("accountname") or os.environ.get("AZURE_STORAGE_ACCOUNT", "")
    found = ambient_credentials("azure", bucket=f"{account}/")
    if found is None:
        return ""
    where = f"of the account {account}" if account else "of every account"
    if found.get("account_key"):
        return f"a key {where}"
    if found.get("sas_token"):
        return f"a SAS token {where}"
    return "an identity that gets access tokens"


#: Name of a store -> the module that its credentials need, and what finds them.
_CREDENTIALS: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    "S3": ("boto3", _s3),
    "Google": ("google.auth", _gcs),
    "Azure": ("azure.identity", _azure),
}
