"""What users of other tools type, and what this command has in its place.

The words are those of `aws s3`, `gsutil`, `gcloud storage`, `azcopy`, `rclone`, `s5cmd` and the
older `skyplane`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_PARALLEL: Final = (
    "requests run in parallel without it; --instance-limit and --bwlimit are the limits"
)
_PROGRESS: Final = "progress is shown without it; --quiet hides it"
_DELETE: Final = "use skyplane-orch sync --delete, which deletes what only DST has"
_RETRIES: Final = "failed requests are sent again without it; skyplane-orch resume continues a copy"
_SKIP: Final = "use --conflict skip, which keeps what is at DST"
_DRY_RUN: Final = "use --dry-run"
_GLOBS: Final = "use --include GLOB or --exclude GLOB, once for each pattern"
_HEADER: Final = "use --header 'NAME: VALUE'"
_UPDATE: Final = "use --update, which replaces an object only if the source is newer"
_CHUNK: Final = "use --chunk-mib MIB"
_LINKS: Final = "files below SRC are copied with what symbolic links lead to; leave it out"
_CREDENTIALS: Final = "use --src-credentials REF or --dst-credentials REF, such as profile:NAME"
_REGION: Final = "use --src-region or --dst-region, such as aws:us-east-1"
_LIST: Final = "use skyplane-orch ls"
_COPY: Final = "use skyplane-orch cp"

#: Option -> what to do in place of it; only for options that the subcommand does not have.
_OPTIONS: Final[Mapping[str, str]] = {
    one: advice
    for names, advice in {
        "--profile --config": _CREDENTIALS,
        "--endpoint-url --endpoint --s3-endpoint": ("use --src-endpoint URL or --dst-endpoint URL"),
        "--region --source-region --destination-region": _REGION,
        "--no-sign-request": "use --src-option anonymous=true",
        "--request-payer --requester-pays": "use --src-option requester-pays=true (s3://)",
        "--billing-project": "use --src-option user_project=PROJECT (gs://)",
        "--exclude --allow": "regions that relay have --exclude-regions and --allow-regions",
        "--transfers --checkers --numworkers --jobs --concurrency -m --multi-thread-streams"
        " --s3-upload-concurrency --max-concurrent-requests": _PARALLEL,
        "-P --progress --no-progress --stats --show-progress --stats-one-line": _PROGRESS,
        "--only-show-errors --no-verbose": "use --quiet",
        "--dryrun": _DRY_RUN,
        "-n": "use --dry-run to write nothing, or --conflict skip to keep what is at DST",
        "-i --interactive": "use --dry-run first, which prints what would be copied",
        "--no-clobber --ignore-existing": _SKIP,
        "--overwrite --immutable": "use --conflict RULE",
        "-u --if-source-newer --source-newer": _UPDATE,
        "-s --if-size-differ --size-differ": "use --size-only",
        "--exact-timestamps -c": "use --checksum, which compares what objects hold",
        "--check-md5 --put-md5 --check-hash": "every copy is checked; --verify also reads it back",
        "--delete -d --del --delete-destination --delete-after --delete-during --delete-before"
        " --delete-unmatched-destination-objects --delete-excluded": _DELETE,
        "--acl --canned-acl --predefined-acl --s3-acl": "use --dst-option acl=NAME (s3://)",
        "--sse --server-side-encryption": "use --dst-option sse=aws:kms (s3://)",
        "--sse-kms-key-id": "use --dst-option sse-kms-key-id=KEY (s3://)",
        "--storage-class --s3-storage-class --block-blob-tier": (
            "use --dst-option storage-class=NAME"
        ),
        "--content-disposition --content-encoding --content-language --expires"
        " --header-upload -h": _HEADER,
        "--no-preserve --metadata-directive --copy-props": (
            "metadata is copied without it; --strict-metadata fails what loses some"
        ),
        "--max-age": "use --newer-than TIME",
        "--min-age": "use --older-than TIME",
        "--filter --filter-from --include-from --exclude-from --include-pattern --exclude-pattern"
        " --exclude-regex --include-regex -x": _GLOBS,
        "--include-path --list-of-files --read-paths-from-stdin -I": "use --files-from FILE",
        "--bandwidth --cap-mbps --limit-rate": "use --bwlimit RATE, such as 10M for 10 MiB/s",
        "--block-size-mb --s3-chunk-size --part-size -p --s3-upload-cutoff --chunk-size"
        " --multipart-chunk-size-mb": _CHUNK,
        "--follow-symlinks --no-follow-symlinks --copy-links --links -L -l"
        " --preserve-symlinks": _LINKS,
        "--retries --low-level-retries --retry-count --max-retries": _RETRIES,
        "-a --archive": "metadata and times are copied without it",
        "--from-to": "the URLs say what the ends are; leave it out",
        "--as-subdir --flatten --parents": (
            "keys below SRC keep their folders at DST; docs/reference/objects.md has the rule"
        ),
        "--output --log-level --debug": "use --json for results and -v for a log",
        "--fast-list --page-size": "listings run in parallel without it",
        "--backup-dir --suffix": "nothing keeps what a copy replaces; use versions of the bucket",
        "--no-traverse --no-check-dest": "use --files-from FILE, which lists only these keys",
        "--max-jobs --max-instances --n-vms": "use --instance-limit N",
        "--solver --solver-target-tput-per-vm-gbits": "use --min-throughput-gbps X",
    }.items()
    for one in names.split()
}

#: Verb -> what to do in place of it.
_VERBS: Final[Mapping[str, str]] = {
    one: advice
    for names, advice in {
        "mv move rename moveto": (
            "use skyplane-orch cp --move, which deletes at SRC what it has copied"
        ),
        "rm del delete deletefile remove purge rb rmdir unlink": (
            "no verb only deletes; use the store's own tool, or " + _DELETE.removeprefix("use ")
        ),
        "copy copyto copyurl upload download put get cat rcat pipe": _COPY,
        "rsync mirror bisync": "use skyplane-orch sync",
        "mb mkdir makebucket make": "buckets are made with the cloud's own tool; folders need none",
        "list dir lsl lsd lsf lsjson tree": _LIST,
        "du size ncdu": _LIST + " -r --summarize, whose last line has the sums",
        "stat head hash md5sum sum": _LIST + " -l",
        "check diff cmp cryptcheck hashsum compare-dest": "use skyplane-orch verify",
        "login auth configure config init": (
            "credentials are those of the cloud's own tools; skyplane-orch doctor checks them"
        ),
        "version": "use skyplane-orch --version",
        "deprovision": "use skyplane-orch teardown, or skyplane-orch sweep",
        "query profile": "use skyplane-orch grid",
        "continue retry": "use skyplane-orch resume",
        "jobs job list-jobs runs": "use skyplane-orch handles, or skyplane-orch status",
        "s3 gsutil gcloud storage batch s3api": "leave it out: skyplane-orch cp SRC DST",
        "run": _COPY,
    }.items()
    for one in names.split()
}


def advice_for_option(option: str) -> str:
    """What to use in place of another tool's option; empty if it is of none."""
    return _OPTIONS.get(option.partition("=")[0], "")


def advice_for_verb(arguments: Sequence[str], verbs: Sequence[str]) -> str:
    """What is wrong with a command line whose first word is no verb; empty if that is not known.

    Args:
        arguments: words of the command line.
        verbs: of this command.
    """
    first, rest = arguments[0], arguments[1:]
    if first in ("help", "man"):
        verb = next((word for word in rest if word in verbs), "")
        return f"use skyplane-orch {verb + ' ' if verb else ''}--help"
    verb = next((word for word in rest if word in verbs), "")
    if first.startswith("-") and verb:
        return f"options come after the verb: skyplane-orch {verb} ... {first}"
    return _VERBS.get(first.lower(), "")
