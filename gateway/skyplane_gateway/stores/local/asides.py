"""Files and folders that stand where copies need a folder or a file, out of their way.

They wait below `.skyplane/aside/<run>/` of the destination's folder, each with its own path. Once
the copies are there, they are deleted. If a copy fails, they are put back. A run that was killed
leaves them, and the next one puts them back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from skyplane_gateway.common.objects import ASIDE_FOLDER, ObjectInfo
from skyplane_gateway.stores.local.error_mapping import mapped
from skyplane_gateway.stores.local.paths import etag_of, info_of
from skyplane_gateway.stores.local.publish import make_folders, sync


class Asides:
    """What one run has set aside in a folder, whose key is empty or ends in a slash.

    Methods raise StoreError.
    """

    def __init__(self, folder: str, run: str) -> None:
        self._key = folder
        self._folder = Path("/", folder)
        self.place = self._folder / ASIDE_FOLDER / run

    @classmethod
    def of_others(cls, folder: str, run: str) -> Iterator[Asides]:
        """Those of all other runs, which were killed or still go on."""
        above = Path("/", folder, ASIDE_FOLDER)
        names: list[str] = []
        with suppress(OSError):  # Of a folder that cannot be read, the listing tells.
            names = sorted(one.name for one in above.iterdir())
        return (cls(folder, name) for name in names if name != run)

    def take(self, name: str, files: Mapping[str, str]) -> bool:
        """Set aside the file or folder of that name; False where it is not as expected.

        Args:
            files: name -> version of each file that it has; nothing else may be in it.
        """
        path, place = self._folder / name, self.place / name
        with mapped(f"setting {path} aside"):
            if _files_in(path, name) != files:
                return False
            make_folders(place.parent)
            path.rename(place)
            sync(place.parent)
            sync(path.parent)
        return True

    def names(self) -> tuple[str, ...]:
        found = sorted(
            Path(above, name) for above, _, names in os.walk(self.place) for name in names
        )
        return tuple(str(path.relative_to(self.place)) for path in found)

    def put_back(self) -> tuple[str, ...]:
        """Put everything back whose place is free; the names that stay."""
        with mapped(f"putting back what is in {self.place}"):
            stays = tuple(self._merged("")) if self.place.is_dir() else ()
            self._tidy()
        return stays

    def discard(self) -> Iterator[ObjectInfo]:
        """Delete everything, and yield each file."""
        with mapped(f"deleting what is in {self.place}"):
            for folder, below, names in os.walk(self.place, topdown=False):
                for name in sorted(names):
                    path = Path(folder, name)
                    info = info_of(self._key + str(path.relative_to(self.place)), path.lstat())
                    path.unlink()
                    yield info
                for name in below:
                    Path(folder, name).rmdir()
            self._tidy()

    def _merged(self, folder: str) -> Iterator[str]:
        """Put back what is in a folder; the names that stay."""
        for here in sorted((self.place / folder).iterdir()):
            name, there = here.name, self._folder / folder / here.name
            is_folder = here.is_dir() and not here.is_symlink()
            if is_folder and there.is_dir():
                yield from self._merged(f"{folder}{name}/")
                with suppress(OSError):
                    here.rmdir()
                continue
            if not is_folder:
                _remove_empty(there)
            if os.path.lexists(there):
                yield folder + name
                continue
            make_folders(there.parent)
            here.rename(there)
            sync(there.parent)

    def _tidy(self) -> None:
        """Remove the folders of this project that are empty."""
        for one in (self.place, *self.place.parents[:2]):
            try:
                one.rmdir()
            except OSError:
                return


def _files_in(path: Path, name: str) -> dict[str, str] | None:
    """Name -> version of the files of a path; None where there is anything else."""
    try:
        status = path.stat()
    except OSError:
        return None
    if stat.S_ISREG(status.st_mode):
        return {name: etag_of(status)}
    if not stat.S_ISDIR(status.st_mode) or path.is_symlink():
        return None
    found: dict[str, str] = {}
    for entry in path.iterdir():
        more = _files_in(entry, f"{name}/{entry.name}")
        if more is None:
            return None
        found |= more
    return found


def _remove_empty(folder: Path) -> None:
    """Remove a folder that holds nothing but folders."""
    if folder.is_symlink() or not folder.is_dir():
        return
    with suppress(OSError):
        for above, _, _ in os.walk(folder, topdown=False):
            Path(above).rmdir()
