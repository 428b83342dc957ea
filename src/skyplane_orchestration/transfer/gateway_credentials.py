"""The credentials that gateways on other machines get: no wider than the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from skyplane_gateway.common.kept_properties import KEEP
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.config import End
from skyplane_gateway.selection.key_mapping import folder_of, map_key
from skyplane_gateway.selection.selection_rule import JOURNAL_FOLDER
from skyplane_gateway.stores import Reach, is_google, limited_credentials
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.fleet import LOCAL, GatewayCredentials
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.provision.provisioner import Finding, Provisioner
from skyplane_orchestration.security.store_credentials import SCOPES_OPTION, CredentialSources
from skyplane_orchestration.storage.open import destination_spec, journal_folder, source_spec
from skyplane_orchestration.storage.server_side_eligibility import why_not_server_side

_GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"

ENDS: Final[tuple[End, ...]] = ("source", "sink")


def place_of(job: TransferJob, side: End) -> Location:
    """Where the gateways of a side read or write."""
    return job.source if side == "source" else job.destination


def opens_itself(location: Location, identity: str) -> bool:
    """Whether a gateway whose machine has an identity for a kind of stores opens this one."""
    is_usual = not location.credential_ref and not location.endpoint_url
    return is_usual and identity == location.kind


def reaches_of(job: TransferJob, side: End) -> tuple[Reach, ...]:
    """What a side of the job needs of the stores; that of the side itself comes first."""
    source, key = source_spec(job), job.source.key
    keeps_tags = source.option("tags") == KEEP
    read = Reach(source, keys=(key,), keeps_tags=keeps_tags)
    if job.recursive:
        read = Reach(source, (folder_of(key),), keeps_tags=keeps_tags)
    if side == "source":
        return (read,)
    folder = journal_folder(job)
    written = Reach(destination_spec(job), (folder,), writes=True, keeps_tags=keeps_tags)
    if not job.recursive and job.on_illegal_key != "escape":
        copy = map_key(key, key, job.destination.key, recursive=False)
        written = replace(written, folders=(folder + JOURNAL_FOLDER,), keys=(copy,))
    # A store that copies by itself reads the source with the credentials of the destination.
    return (written,) if why_not_server_side(job) else (written, read)


def sent_credentials(
    job: TransferJob, side: End, sources: CredentialSources, rule: GatewayCredentials
) -> Credentials | None:
    """The credentials for the gateways of a side that run on another machine; None for none.

    Raises CredentialsTooWide, or as `CredentialSources.resolve`.
    """
    return _sent(_found(place_of(job, side), sources, rule), job, side, rule)


def _found(
    place: Location, sources: CredentialSources, rule: GatewayCredentials
) -> Credentials | None:
    if rule == "limited" and place.kind == "gcs" and is_google(place.endpoint_url):
        # Google makes limited tokens of those of this scope only.
        place = replace(place, options={**place.options, SCOPES_OPTION: _GOOGLE_SCOPE})
    return sources.resolve(place)


def _sent(
    found: Credentials | None, job: TransferJob, side: End, rule: GatewayCredentials
) -> Credentials | None:
    """The same object where they cannot, or need not, be limited."""
    if found is None or rule == "whole":
        return found
    return limited_credentials(found, reaches_of(job, side))


def require_sendable(
    job: TransferJob,
    plan: TransferPlan,
    provisioner: Provisioner,
    sources: CredentialSources,
    rule: GatewayCredentials,
) -> None:
    """Get the credentials that gateways of a plan will need, before any of them starts.

    Raises as `sent_credentials`.
    """
    if provisioner.runs_on_this_machine(plan):
        return
    for side, region in zip(ENDS, (plan.src, plan.dst), strict=True):
        if not opens_itself(place_of(job, side), provisioner.store_identity(region)):
            sent_credentials(job, side, sources, rule)


def credential_findings(
    job: TransferJob,
    provisioner: Provisioner,
    sources: CredentialSources,
    rule: GatewayCredentials,
) -> tuple[Finding, ...]:
    """What gateways get for each end of a job whose regions are known; gives them nothing."""
    return tuple(_finding(job, side, provisioner, sources, rule) for side in ENDS)


def _finding(
    job: TransferJob,
    side: End,
    provisioner: Provisioner,
    sources: CredentialSources,
    rule: GatewayCredentials,
) -> Finding:
    name, place = f"credentials of the {side}", place_of(job, side)
    if provisioner.name == LOCAL:
        return Finding(name, True, "gateways run on this machine: nothing leaves it")
    try:
        if opens_itself(place, provisioner.store_identity(place.region)):
            return Finding(name, True, "gateways use the identity of their machines")
        found = _found(place, sources, rule)
        sent = _sent(found, job, side, rule)
    except SkyplaneError as error:
        return Finding(name, False, error.message)
    if sent is None:
        return Finding(name, True, "gateways get none")
    if sent is found:
        return Finding(name, True, "gateways get those that were found", is_warning=True)
    urls = ", ".join(one.urls for one in reaches_of(job, side))
    return Finding(name, True, f"gateways get some that reach {urls} only")
