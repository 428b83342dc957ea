"""The rules of a job: which objects it copies, to which keys, and what has to hold.

The library's job, the specification that a lead reads and the rule that selects objects share them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from skyplane_gateway.common.wording import with_fields

#: What to do with an object that is already at the destination.
ConflictRule = Literal[
    "fail",
    "skip",
    "replace",
    "replace-if-newer",
    "replace-if-different",
    "replace-if-checksum-differs",
    "replace-if-size-differs",
]

#: What to do with an object whose key the destination cannot hold.
IllegalKeyRule = Literal["fail", "skip", "escape"]
ArchivedObjectRule = Literal["fail", "skip", "read"]

#: What a sync does with a copy that somebody has changed since.
EditedCopyRule = Literal["replace", "keep"]

#: Whether copies are recorded in the manifest of the destination: `auto` under
#: `replace-if-different`, whatever the conflict rule is, or not at all.
MANIFEST_RULES: Final = ("auto", "always", "never")

#: How a written object is checked: `stored` compares the store's checksum, or reads the
#: object back where the checksum cannot be trusted; `reread` always reads it back.
Verification = Literal["stored", "reread", "none"]


def rule_metadata(what: str = "", *, is_in_transfer_key: bool = True) -> dict[str, Any]:
    """The metadata of a field of `JobOptions`.

    Args:
        what: for the help of the command, which then has an option of the field's name.
        is_in_transfer_key: False for a rule that may change between the tries of one transfer.
    """
    return {"what": what, "is_in_transfer_key": is_in_transfer_key}


#: What to do about a folder in place of an object.
RECURSIVELY: Final = with_fields("copy recursively ({recursive:True})")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Which objects a job copies, to which keys, and what has to hold; as its user chooses it.

    A `TransferJob`, the specification that its lead reads and the rule that selects objects have
    all these fields; each copies them whole, by `rules_of`. The order is that of documents.

    Args:
        recursive: the source is a prefix; without it, one object.
        include, exclude: patterns of the whole key below the source prefix, `*` across slashes
            too (for a single object, of its last segment). An empty `include` means all; exclude
            wins. See docs/reference/filters.md.
        conflict: what to do with an object that is already there.
        publish_last: further patterns of objects that are written after all others.
        verify: see `Verification`.
        allow_empty: a transfer without objects succeeds.
        allow_failed: a transfer with failed objects succeeds, and is not resumed.
        strict_metadata: an object fails, and is not copied, when its copy would lack tags,
            storage class, a hold or other metadata of the source; see docs/reference/objects.md.
        on_illegal_key: what to do with an object whose key the destination cannot hold: `fail`
            it, `skip` it, or copy it under an `escape`d key; see docs/reference/objects.md.
        on_archived_object: what to do with an object that the source has archived: `fail` it,
            `skip` it, or `read` it as any other, which some services allow.
        manifest_at: one of `MANIFEST_RULES`; or a folder, as path or URL, for a manifest that lies
            apart from its copies. See docs/how-to/manifest.md.
        trust_manifest: the manifest stands for the listing of the destination.
        on_edited_copy: what to do, by the manifest, with a copy that was changed at the
            destination: `replace` it, or `keep` it.
    """

    recursive: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    conflict: ConflictRule = "replace"
    publish_last: tuple[str, ...] = field(
        default=(), metadata=rule_metadata(is_in_transfer_key=False)
    )
    verify: Verification = field(default="stored", metadata=rule_metadata(is_in_transfer_key=False))
    allow_empty: bool = field(
        default=False,
        metadata=rule_metadata("succeed if there is nothing to copy", is_in_transfer_key=False),
    )
    allow_failed: bool = field(
        default=False,
        metadata=rule_metadata("succeed even if some objects fail", is_in_transfer_key=False),
    )
    strict_metadata: bool = field(
        default=False,
        metadata=rule_metadata(
            "fail an object if its copy would lose tags, storage class, a hold or other metadata",
            is_in_transfer_key=False,
        ),
    )
    on_illegal_key: IllegalKeyRule = field(
        default="fail",
        metadata=rule_metadata(
            "what to do with an object whose key DST cannot hold: fail it, skip it, or copy it"
            " under an escaped key"
        ),
    )
    on_archived_object: ArchivedObjectRule = field(
        default="fail",
        metadata=rule_metadata(
            "what to do with an object whose storage class must be restored before a read: fail"
            " it, skip it, or read it as any other"
        ),
    )
    manifest_at: str = field(
        default="auto",
        metadata=rule_metadata(
            "whether DST keeps a manifest of its copies: auto (for sync and"
            " replace-if-different), always, never, or the folder for it as path or URL",
            is_in_transfer_key=False,
        ),
    )
    trust_manifest: bool = field(
        default=False,
        metadata=rule_metadata(
            "list SRC alone: the manifest tells what is at DST", is_in_transfer_key=False
        ),
    )
    on_edited_copy: EditedCopyRule = field(
        default="replace",
        metadata=rule_metadata(
            "what to do with a copy that was changed at DST since: replace it, or keep it"
        ),
    )

    @property
    def reads_manifest(self) -> bool:
        """Whether copies are compared by the manifest of the destination."""
        return self.conflict == "replace-if-different" and self.manifest_at != "never"

    @property
    def keeps_manifest_elsewhere(self) -> bool:
        """Whether the manifest lies apart from the copies."""
        return self.manifest_at not in MANIFEST_RULES

    @property
    def keeps_manifest(self) -> bool:
        """Whether verified copies are recorded in the manifest of the destination."""
        return self.verify != "none" and (self.reads_manifest or self.manifest_at == "always")


def rules_of(whole: JobOptions) -> dict[str, Any]:
    """The fields of `JobOptions` of a larger value, to make another of them."""
    return {one.name: getattr(whole, one.name) for one in fields(JobOptions)}
