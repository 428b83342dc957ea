"""Unfinished files of a file store that belong to no open upload."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from skyplane_gateway.stores.local.errors import mapped
from skyplane_gateway.stores.local.paths import TEMPORARY, root_of
from skyplane_gateway.stores.local.uploads import LOG_SUFFIX, unfinished_files, upload_of

#: The folder of journals, at any depth.
_JOURNALS = ".skyplane"
_TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, order=True)
class OrphanFile:
    """An unfinished file without an open upload, left by a killed process."""

    path: Path
    written_unix_s: float

    def remove(self) -> None:
        """Remove it, and folders of journals that are empty then. Idempotent."""
        with mapped(f"removing {self.path}"):
            self.path.unlink(missing_ok=True)
        for folder in self.path.parents:
            if _JOURNALS not in folder.parts:
                break
            with suppress(OSError):
                folder.rmdir()


def find_orphan_files(bucket: str, folder: str) -> Iterator[OrphanFile]:
    """Unfinished files below a folder that belong to no open upload.

    Some may belong to writers at work: compare the time of the last write.
    """
    root = root_of(bucket)
    with mapped(f"looking for unfinished files below {root / folder}"):
        for path in unfinished_files(root, folder):
            name = path.name.removesuffix(LOG_SUFFIX)
            if not _TOKEN.fullmatch(name.removeprefix(TEMPORARY)):
                continue
            if upload_of(path.with_name(name + LOG_SUFFIX)) is not None:
                continue
            with suppress(FileNotFoundError):
                yield OrphanFile(path, path.stat().st_mtime)
