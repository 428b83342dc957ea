"""Opens the stores of locations, and describes locations and jobs to gateways."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.job_options import rules_of
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.journal.document import folder_of_destination
from skyplane_gateway.manifest.reader import ManifestReader
from skyplane_gateway.selection.candidates import Lister
from skyplane_gateway.selection.difference import ComparisonAnswer, Ends
from skyplane_gateway.selection.questions import (
    Ask,
    ComparisonQuestion,
    answers_in_order,
    of_checksums,
    of_kind,
)
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_gateway.stores import (
    GUESSED_TYPE,
    KEPT_TIME,
    StoreSpec,
    ahead_s_of,
    connection_string_fields,
    head_all,
    open_store,
    uses_md5,
    with_crc32c,
)
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.written_attributes import expires_of
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.parallel import map_parallel
from skyplane_orchestration.units import mib_to_bytes

#: Retries of plans, checks and reports, which a user waits for.
SHORT_RETRIES: Final = RetryPolicy(attempts=3, throttle_s=10.0, longest_pause_s=5.0)

#: Objects that are read in parallel.
PARALLEL_READS: Final = 8

#: Where the AWS CLI looks for another endpoint, in this order.
_S3_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
#: Where Google's SDKs look for an emulator; a host and a port may do.
_GCS_EMULATOR: Final = "STORAGE_EMULATOR_HOST"
#: Where the Azure CLI looks for credentials and an endpoint.
_AZURE_CONNECTION: Final = "AZURE_STORAGE_CONNECTION_STRING"


@contextmanager
def open_location(
    location: Location, credentials: CredentialSources, policy: RetryPolicy = SHORT_RETRIES
) -> Iterator[ObjectStore]:
    """The store of a location; closed at the end of the block. Makes no request.

    The default `policy` retries for seconds; `RetryPolicy()` waits minutes, as gateways do.

    Raises:
        ConfigurationInvalid: there is no such kind of store, or an option is not valid.
        MissingExtra: the store's SDK is not installed.
    """
    with closing(open_store(spec_of(location), credentials.resolve(location), policy)) as store:
        yield store


def beside_location(location: Location, target: str) -> Location:
    """A path or URL that a user names; one in the bucket of a location is opened as that."""
    place = Location(target)
    is_there = (place.kind, place.bucket) == (location.kind, location.bucket)
    return replace(location, url=target) if is_there else place


@contextmanager
def open_ends(
    job: TransferJob, credentials: CredentialSources
) -> Iterator[tuple[ObjectStore, ObjectStore]]:
    """The stores of a job's source and destination; see `open_location`."""
    with (
        open_location(job.source, credentials) as source,
        open_location(job.destination, credentials) as destination,
    ):
        yield source, destination


def spec_of(location: Location) -> StoreSpec:
    """The store of a location, in the form that gateways read.

    A location without an endpoint takes the one that the cloud's own tools take on this machine.
    S3: AWS_ENDPOINT_URL_S3, then AWS_ENDPOINT_URL. Google: STORAGE_EMULATOR_HOST. Azure: that of
    AZURE_STORAGE_CONNECTION_STRING, if it is for this account. Gateways do not see these
    variables.
    """
    endpoint = location.endpoint_url
    if location.kind == "gcs" and not endpoint:
        endpoint = os.environ.get(_GCS_EMULATOR, "")
        endpoint = f"http://{endpoint}" if endpoint and "://" not in endpoint else endpoint
    if location.kind == "s3" and not endpoint:
        endpoint = next((os.environ[name] for name in _S3_ENDPOINTS if os.environ.get(name)), "")
    if location.kind == "azure" and not endpoint:
        endpoint = _azure_endpoint(location)
    return StoreSpec(
        kind=location.kind,
        bucket=location.bucket,
        endpoint_url=endpoint or None,
        region=location.region.partition(":")[2] or None if location.kind != "file" else None,
        options=tuple(sorted(location.options.items())),
    )


def _azure_endpoint(location: Location) -> str:
    """Empty where the connection string names none other than Azure's own."""
    fields = connection_string_fields(os.environ.get(_AZURE_CONNECTION, ""))
    account = location.bucket.partition("/")[0]
    if fields.get("accountname", account) != account:
        return ""
    return fields.get("blobendpoint", "").rstrip("/")


def source_spec(job: TransferJob) -> StoreSpec:
    """`spec_of` the job's source; files get the options that tell content types and times."""
    spec = spec_of(job.source)
    if spec.kind != "file":
        return spec
    added = {GUESSED_TYPE, KEPT_TIME} if job.guess_mime_type else {KEPT_TIME}
    return replace(spec, options=tuple(sorted({*spec.options, *added})))


def destination_spec(job: TransferJob) -> StoreSpec:
    """`spec_of` the job's destination; S3 gets the option that sets Expires."""
    spec, expires = spec_of(job.destination), expires_of(job.headers)
    if expires is None:
        return spec
    return replace(spec, options=tuple(sorted({*spec.options, ("expires", expires)})))


def journal_folder(job: TransferJob) -> str:
    """The folder at the destination that holds the job's journals."""
    return folder_of_destination(job.destination.key, recursive=job.recursive)


def rule_of(job: TransferJob, clock: Clock = SYSTEM_CLOCK) -> SelectionRule:
    """Which objects the job copies, and to which keys; durations of filters count from now."""
    return SelectionRule.of(transfer_spec_of(job), clock.wall())


def destination_lister(
    job: TransferJob,
    store: ObjectStore,
    manifest: ManifestReader,
    through: Callable[[Iterator[ObjectInfo]], Iterator[ObjectInfo]] = iter,
) -> Lister:
    """For `select`: the destination, with what its manifest says; or by that alone.

    `through`: applied to the rows of the store; it may read ahead.
    """
    if not job.reads_manifest:
        return lambda prefix: through(store.list(prefix))
    join = manifest.listing if job.trust_manifest else manifest.beside
    return lambda prefix: join(through(store.list(prefix)), prefix)


def asker_of(source: ObjectStore, destination: ObjectStore) -> Ask:
    """For `select`: looks at the objects from here."""

    def checksums(one: ComparisonQuestion) -> ComparisonAnswer:
        here, there = one.kind != "destination-checksum", one.kind != "source-checksum"
        return ComparisonAnswer(
            with_crc32c(source, one.source.key) if here else None,
            with_crc32c(destination, one.destination.key) if there else None,
        )

    def ask(asked: Sequence[ComparisonQuestion]) -> list[ComparisonAnswer]:
        read = map_parallel(of_checksums(asked), checksums, PARALLEL_READS)
        return answers_in_order(
            asked,
            head_all(source, [one.source.key for one in of_kind("source", asked)]),
            head_all(destination, [one.destination.key for one in of_kind("destination", asked)]),
            (answer for _, answer in read),
        )

    return ask


def ends_of(
    source: ObjectStore, destination: ObjectStore, manifest: ManifestReader | None = None
) -> Ends:
    """For `select`: as far as both are listed."""
    ahead_s = ahead_s_of(destination) - ahead_s_of(source)
    has_md5 = uses_md5(source.spec) and uses_md5(destination.spec)
    is_trusted = manifest is not None and manifest.is_trusted
    kinds = source.spec.kind, destination.spec.kind
    return Ends(*kinds, ahead_s, has_md5, source.spec.name, is_trusted)


def transfer_spec_of(job: TransferJob) -> TransferSpec:
    """The job, in the form that its lead reads."""
    return TransferSpec(
        source=source_spec(job),
        destination=destination_spec(job),
        source_prefix=job.source.key,
        destination_prefix=job.destination.key,
        chunk_bytes=mib_to_bytes(job.limits.part_mib),
        whole_bytes=mib_to_bytes(job.limits.whole_mib),
        filter=job.object_filter,
        sets=job.written_attributes,
        **rules_of(job),
    )
