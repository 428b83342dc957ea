"""Checks that there is something to copy, and says why if there is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from skyplane_gateway.common.job_options import RECURSIVELY
from skyplane_gateway.common.object_filter import ALL_OBJECTS, ObjectFilter
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.common.wording import with_fields
from skyplane_gateway.selection.candidates import Lister, glob_advice
from skyplane_gateway.selection.key_mapping import folder_of
from skyplane_gateway.stores import ObjectStore
from skyplane_orchestration.errors import ConfigurationInvalid, EmptySource, NotFound, StoreError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.storage.open import rule_of

_ALLOWED: Final = with_fields("{allow_empty} makes that a success")
_NOT_RECURSIVELY: Final = with_fields("copy it without {recursive}")


@contextmanager
def named_in_errors(end: str) -> Iterator[None]:
    """Put `source` or `destination` before an error of the end's store in the block."""
    try:
        yield
    except (ConfigurationInvalid, StoreError) as error:
        if not error.message.startswith(f"{end}: "):
            error.put_before(end)
        raise


class CountingLister:
    """A lister that counts its rows and names its end, `source` or `destination`, in errors."""

    def __init__(self, lister: Lister, end: str) -> None:
        self._lister = lister
        self._end = end
        self.count = 0

    def __call__(self, prefix: str) -> Iterator[ObjectInfo]:
        with named_in_errors(self._end):
            for row in self._lister(prefix):
                self.count += 1
                yield row


def require_file(job: TransferJob) -> None:
    """Raise NotFound unless the one file of a job without `recursive` exists."""
    if job.source.kind != "file" or job.recursive:
        return
    path = f"/{job.source.key}"
    if os.path.isdir(path):  # noqa: PTH112 - a Path has lost its last slash
        raise NotFound(f"{path} is a folder; to copy the files in it, " + RECURSIVELY)
    if not os.path.lexists(path):
        raise NotFound(f"there is no file {path}; " + (glob_advice(path) or "check its name"))


def require_some(job: TransferJob, store: ObjectStore, *, selected: int, listed: int) -> None:
    """Raise EmptySource, with the reason, if nothing is to be copied and the job refuses that."""
    if selected == 0 and not job.allow_empty:
        raise EmptySource(_why(job, store, listed))


def _why(job: TransferJob, store: ObjectStore, listed: int) -> str:
    url, key = job.source.url, job.source.key
    found = listed or len(job.files_from or ())
    scope = rule_of(job).scope
    if scope and not found and next(store.list(folder_of(key)), None) is not None:
        return with_fields(
            "no key under {url!r} begins with {scope!r}, as {include} asks; a glob has to match "
            "the whole key below the prefix",
            url=url,
            scope=scope,
        )
    if job.files_from == ():
        return with_fields("{files_from} names no object; ") + _ALLOWED
    if listed and job.object_filter not in (ALL_OBJECTS, ObjectFilter(job.files_from)):
        return with_fields(
            "the filters leave out every object under {url!r}; size and time have to be within "
            "{min_size}, {max_size}, {newer_than} and {older_than}",
            url=url,
        )
    if found and (job.include or job.exclude):
        all_of = "the only object" if found == 1 else f"all {found} objects"
        what = f"{all_of} under" if job.recursive else "the one object"
        return (
            f"the filters leave out {what} {url!r}; a glob has to match the whole key below the "
            "prefix, and its * also matches slashes"
        )
    if job.source.kind == "file":
        path = f"/{key}"
        if not os.path.lexists(path):
            advice = glob_advice(path)
            return f"there is no folder {path}" + (advice and "; " + advice)
        if not os.path.isdir(path):  # noqa: PTH112 - as above
            return f"{path} is a file, not a folder; " + _NOT_RECURSIVELY
        return f"there are no files below {path}; " + _ALLOWED
    first = next(store.list(key), None) if key and not key.endswith("/") else None
    if first is not None and first.key == key:
        return f"{url!r} is one object, not a prefix; " + _NOT_RECURSIVELY
    return f"there are no objects under {url!r}; " + (
        glob_advice(key) or with_fields("check the prefix, or set {allow_empty}")
    )
