"""Rules between the fields of a job: what cannot be asked for together.

All functions raise ConfigurationInvalid. A field that still holds a template is checked when the
orchestrator has rendered it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skyplane_gateway.common.job_options import RECURSIVELY
from skyplane_gateway.common.key_patterns import can_match
from skyplane_gateway.common.wording import FieldName
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import holds_template
from skyplane_orchestration.model.written_attributes import expires_of, written_attributes

if TYPE_CHECKING:
    from skyplane_orchestration.model.job import TransferJob


def check_delete(job: TransferJob) -> None:
    """Refuse `delete` where it is not safe, or where a pattern would protect nothing."""
    reasons = {
        RECURSIVELY: not job.recursive,
        "leave out {move}: the next run would find an empty source": job.move,
        "leave out {files_from}: keys outside the list are never deleted": (
            job.files_from is not None
        ),
        "escaped keys are not those of the source; leave out {on_illegal_key}": (
            job.on_illegal_key == "escape"
        ),
        "leave out {verify:'none'}: only verified copies allow deletes": job.verify == "none",
    }
    for reason, is_wrong in reasons.items():
        if is_wrong:
            refusal = "{delete} is not possible here; "
            raise ConfigurationInvalid.about(refusal + reason)
    for pattern in () if job.allow_unmatched_patterns else job.exclude:
        if not can_match(pattern):
            raise ConfigurationInvalid.about(
                "no key can match the pattern {pattern!r} of {exclude}, so it protects "
                "nothing from {delete}; mend it (a key that begins with a slash is [/]x), "
                "leave it out, or set {allow_unmatched_patterns}",
                pattern=pattern,
            )


def check_move(job: TransferJob) -> None:
    """Refuse a move of what nobody has verified."""
    if job.move and job.verify == "none":
        raise ConfigurationInvalid.about(
            "a {move} deletes the source, so what was written must be verified; leave out "
            "{verify:'none'}"
        )


def check_manifest_at(job: TransferJob) -> None:
    """Refuse what is neither a rule for manifests nor a folder."""
    if job.keeps_manifest_elsewhere and "/" not in job.manifest_at:
        raise ConfigurationInvalid.about(
            "{manifest_at} is auto, always, never, or a folder as path or URL, not {given!r}",
            given=job.manifest_at,
        )


def check_manifest(job: TransferJob) -> None:
    """Refuse to trust a manifest that is not read, or for deletes."""
    if not job.trust_manifest:
        return
    if job.delete:
        raise ConfigurationInvalid.about(
            "{delete} lists the destination, so it cannot {trust_manifest}; leave out one of them"
        )
    if job.keeps_manifest_elsewhere or not job.reads_manifest:
        raise ConfigurationInvalid.about(
            "{trust_manifest} needs the rule of a sync, replace-if-different, in {conflict}, and"
            " the manifest at the destination: leave out {manifest_at}"
        )


def check_metadata(job: TransferJob) -> None:
    """Refuse headers and user metadata that the destination could not keep."""
    is_known = not holds_template(job.destination.url)
    if job.strict_metadata and is_known and job.destination.kind == "file":
        raise ConfigurationInvalid.about(
            "files keep no metadata, so objects that have some could not be copied; leave "
            "out {strict_metadata}, or copy to a bucket"
        )
    _check_written(job)


def _check_written(job: TransferJob) -> None:
    """Refuse headers and user metadata that no store could keep."""
    given = job.content_type, job.cache_control, job.headers, job.object_metadata
    texts = (*given[:2], *job.headers.values(), *job.object_metadata.values())
    if any(text is not None and holds_template(text) for text in texts):
        return
    is_set, expires = written_attributes(*given) is not None, expires_of(job.headers)
    if holds_template(job.destination.url) or not (is_set or expires):
        return
    if job.destination.kind == "file":
        first = next(
            name
            for name in ("content_type", "cache_control", "headers", "object_metadata")
            if getattr(job, name)
        )
        raise ConfigurationInvalid.about(
            "files keep no headers and no metadata; leave out {first}, or copy to a bucket",
            first=FieldName(first),
        )
    if expires and job.destination.kind != "s3":
        raise ConfigurationInvalid.about("{headers} 'Expires' is kept by S3 only; leave it out")
