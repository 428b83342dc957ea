"""What users of other tools type, and what this command has in its place.

The words are the usual ones of `aws s3`, `gsutil`, `azcopy`, `rclone` and the older `skyplane`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_LIST: Final = "use skyplane-orch ls"
_COPY: Final = "use skyplane-orch cp"
_DELETE: Final = "use skyplane-orch sync --delete, which deletes what only DST has"


def _by_word(advice: Mapping[str, str]) -> Mapping[str, str]:
    return {word: text for words, text in advice.items() for word in words.split()}


#: Option -> what to do in place of it; only for options that the subcommand does not have.
_OPTIONS: Final = _by_word(
    {
        "--profile --config": "use --src-credentials REF or --dst-credentials REF, as profile:NAME",
        "--endpoint-url --endpoint --s3-endpoint": "use --src-endpoint URL or --dst-endpoint URL",
        "--region --source-region": "use --src-region or --dst-region, such as aws:us-east-1",
        "--no-sign-request": "use --src-option anonymous=true",
        "--request-payer --requester-pays": "use --src-option requester-pays=true (s3://)",
        "--billing-project": "use --src-option user_project=PROJECT (gs://)",
        "--exclude --allow": "regions that relay have --exclude-regions and --allow-regions",
        "--transfers --checkers --numworkers --jobs --concurrency -m": (
            "requests run in parallel without it; --instance-limit and --bwlimit are the limits"
        ),
        "-P --progress --no-progress": "progress is shown without it; --quiet hides it",
        "--only-show-errors": "use --quiet",
        "--dryrun": "use --dry-run",
        "-i --interactive": "use --dry-run, which prints what would be copied",
        "-n": "use --dry-run to write nothing, or --conflict skip to keep what is at DST",
        "--no-clobber --ignore-existing": "use --conflict skip, which keeps what is at DST",
        "--overwrite --immutable": "use --conflict RULE",
        "-u": "use --update, which replaces an object only if the source is newer",
        "-s": "use --size-only",
        "-c --exact-timestamps": "use --checksum, which compares what objects hold",
        "--delete --del -d --delete-destination --delete-after --delete-excluded": _DELETE,
        "--acl --canned-acl": "use --dst-option acl=NAME (s3://)",
        "--sse": "use --dst-option sse=aws:kms (s3://)",
        "--sse-kms-key-id": "use --dst-option sse-kms-key-id=KEY (s3://)",
        "--storage-class --block-blob-tier": "use --dst-option storage-class=NAME",
        "--max-age": "use --newer-than TIME",
        "--min-age": "use --older-than TIME",
        "--filter --include-pattern --exclude-pattern -x": "use --include GLOB or --exclude GLOB",
        "--include-from --list-of-files -I": "use --files-from FILE",
        "--limit-rate --cap-mbps": "use --bwlimit RATE, such as 10M for 10 MiB/s",
        "--block-size-mb --part-size -p": "use --chunk-mib MIB",
        "--retries": "failed requests are sent again without it; skyplane-orch resume continues",
        "--prove-s": "leave it out: every plan states its gap",
        "--follow-symlinks --copy-links -L": (
            "files below SRC are copied with what symbolic links lead to; leave it out"
        ),
        "-a --archive": "metadata and times are copied without it",
        "--max-jobs --n-vms": "use --instance-limit N",
    }
)

#: Verb -> what to do in place of it.
_VERBS: Final = _by_word(
    {
        "mv move": "use skyplane-orch cp --move, which deletes at SRC what it has copied",
        "rm delete purge": f"no verb only deletes; use the store's own tool, or {_DELETE[4:]}",
        "copy copyto upload download put get run": _COPY,
        "s3 gsutil gcloud storage": "leave it out: skyplane-orch cp SRC DST",
        "mb mkdir": "buckets are made with the cloud's own tool; folders need none",
        "rsync mirror": "use skyplane-orch sync",
        "list dir lsl lsf": _LIST,
        "du size": _LIST + " -r --summarize, whose last line has the sums",
        "stat": _LIST + " -l",
        "check": "use skyplane-orch verify",
        "login configure config init": "skyplane-orch doctor checks credentials of the cloud tools",
        "version": "use skyplane-orch --version",
        "deprovision": "use skyplane-orch teardown, or skyplane-orch sweep",
        "continue retry": "use skyplane-orch resume",
    }
)


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
