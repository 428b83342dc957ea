"""Whether the store may copy objects of a job itself, so that their bytes pass no gateway."""

from __future__ import annotations

from typing import Final

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.stores import gives_checksums
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.storage.open import spec_of

#: Kinds of stores that copy from another bucket under all fences of a transfer.
_COPYING: Final = ("s3", "gcs")
#: Options of an end with which a copy is billed or authorised in another way.
_SPECIAL: Final = ("anonymous", "requester-pays", "user_project")


def why_not_server_side(job: TransferJob) -> str:
    """Why the store copies no object of the job itself; empty where it may.

    It needs one service, one region and one set of credentials: the requests are those of the
    destination and have to read the source. A copy between regions has a price of its own. The
    job has its regions (`preflight.locate`). Makes no request.
    """
    source, destination = spec_of(job.source), spec_of(job.destination)
    reasons = {
        "the job says never": job.server_side_copy == "never",
        "the ends are of different services": source.kind != destination.kind,
        f"stores of the kind {source.kind} do not": source.kind not in _COPYING,
        "the ends have different endpoints": source.endpoint_url != destination.endpoint_url,
        "the ends are in different regions": job.source.region != job.destination.region,
        "the ends have different credentials": (
            job.source.credential_ref != job.destination.credential_ref
        ),
        f"an end has one of the options {', '.join(_SPECIAL)}": (
            _is_special(source) or _is_special(destination)
        ),
        "the source reports no checksum that can be trusted (option checksum=trusted)": (
            not gives_checksums(source)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def server_side_note(job: TransferJob) -> str:
    """What a plan says of a job for which `why_not_server_side` gives no reason."""
    limits = job.limits
    least_mib = limits.part_mib if job.source.kind == "s3" else limits.whole_mib
    return (
        f"the store itself copies objects larger than {least_mib} MiB that have a CRC32C: their "
        "bytes pass through no gateway and cost no egress"
    )


def _is_special(store: StoreSpec) -> bool:
    return any(store.option(name, "false") != "false" for name in _SPECIAL)
