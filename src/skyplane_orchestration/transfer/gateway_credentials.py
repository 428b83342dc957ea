"""The credentials that gateways on other machines get: no wider than the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.kept_properties import KEEP
from skyplane_gateway.common.objects import MANIFEST_FOLDER, Credentials
from skyplane_gateway.config import End
from skyplane_gateway.selection.key_mapping import folder_of, map_key
from skyplane_gateway.selection.selection_rule import JOURNAL_FOLDER
from skyplane_gateway.stores import Reach, has_sessions, is_google, limited_credentials
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.fleet import LOCAL, GatewayCredentials
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.provision.provisioner import Finding, Provisioner
from skyplane_orchestration.security.store_credentials import (
    SCOPES_OPTION,
    UNASSUMED_OPTION,
    CredentialSources,
)
from skyplane_orchestration.storage.open import destination_spec, journal_folder, source_spec
from skyplane_orchestration.storage.preflight import with_planned_regions
from skyplane_orchestration.storage.server_side_eligibility import why_not_server_side

_GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"

#: Credentials with less left are not kept from a trial to an attach, in seconds.
_LEFT_S: Final = 1800.0

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
        own = (JOURNAL_FOLDER, MANIFEST_FOLDER)[: 1 + job.reads_manifest]
        written = replace(written, folders=tuple(folder + one for one in own), keys=(copy,))
    # A store that copies by itself reads the source with the credentials of the destination.
    return (written,) if why_not_server_side(job) else (written, read)


class SentCredentials:
    """The credentials of a client, as gateways on other machines get them.

    What `require` has tried before a launch is what `of` gives at the attach that follows, so one
    job asks for its credentials once. They are kept in memory only, those of the last launch.

    Args:
        sources: of the whole credentials.
        rule: what of them gateways get.
    """

    def __init__(
        self,
        sources: CredentialSources,
        rule: GatewayCredentials = "limited",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.sources = sources
        self._rule = rule
        self._clock = clock
        self._tried: dict[object, Credentials] = {}

    def of(self, job: TransferJob, side: End) -> Credentials | None:
        """For the gateways of a side of a job whose regions are known; None for none.

        Raises CredentialsTooWide, or as `CredentialSources.resolve`.
        """
        tried = self._tried.pop(_what_for(job, side), None)
        if tried is not None and float(tried["expires_at"]) > self._clock.wall() + _LEFT_S:
            return tried
        return self._sent(self._found(job, side), job, side)

    def require(self, job: TransferJob, plan: TransferPlan, provisioner: Provisioner) -> None:
        """Get the credentials that gateways of a plan will need, before any of them starts.

        Raises as `of`.
        """
        if not plan.needs_gateways or provisioner.runs_on_this_machine(plan):
            return
        job = with_planned_regions(job, plan, self.sources)
        found: dict[object, Credentials] = {}
        for side, region in zip(ENDS, (plan.src, plan.dst), strict=True):
            if opens_itself(place_of(job, side), provisioner.store_identity(region)):
                continue
            sent = self.of(job, side)
            if sent is not None and "expires_at" in sent:
                found[_what_for(job, side)] = sent
        self._tried = found

    def _found(self, job: TransferJob, side: End) -> Credentials | None:
        """The whole ones, in the form that can be limited."""
        place, store = place_of(job, side), reaches_of(job, side)[0].store
        more: dict[str, str] = {}
        if self._rule == "limited" and store.kind == "gcs" and is_google(store.endpoint_url):
            # Google makes limited tokens of those of this scope only.
            more = {SCOPES_OPTION: _GOOGLE_SCOPE}
        if self._rule == "limited" and store.kind == "s3" and has_sessions(store.endpoint_url):
            more = {UNASSUMED_OPTION: "true"}
        return self.sources.resolve(replace(place, options={**place.options, **more}))

    def _sent(self, found: Credentials | None, job: TransferJob, side: End) -> Credentials | None:
        """The same object where they cannot, or need not, be limited."""
        if found is None or self._rule == "whole":
            return found
        return limited_credentials(found, reaches_of(job, side))

    def findings(self, job: TransferJob, provisioner: Provisioner) -> tuple[Finding, ...]:
        """What gateways get for each end of a job whose regions are known; gives them nothing."""
        return tuple(self._finding(job, side, provisioner) for side in ENDS)

    def _finding(self, job: TransferJob, side: End, provisioner: Provisioner) -> Finding:
        name, place = f"credentials of the {side}", place_of(job, side)
        if provisioner.name == LOCAL:
            return Finding(name, True, "gateways run on this machine: nothing leaves it")
        try:
            if opens_itself(place, provisioner.store_identity(place.region)):
                return Finding(name, True, "gateways use the identity of their machines")
            found = self._found(job, side)
            sent = self._sent(found, job, side)
        except SkyplaneError as error:
            return Finding(name, False, error.message)
        if sent is None:
            if reaches_of(job, side)[0].store.kind == "file":
                return Finding(name, True, "gateways get none")
            text = "none are found, so gateways get none; they open only what needs none, or what"
            return Finding(name, True, f"{text} their machines may open", is_warning=True)
        if sent is found:
            return Finding(name, True, "gateways get those that were found", is_warning=True)
        urls = ", ".join(one.urls for one in reaches_of(job, side))
        return Finding(name, True, f"gateways get some that reach {urls} only")


def _what_for(job: TransferJob, side: End) -> object:
    """The same for the same credentials."""
    return place_of(job, side).credential_ref, reaches_of(job, side)
