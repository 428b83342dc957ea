"""Places as folders of this machine, by tools that others keep: rclone, else the cloud's own."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid, MountFailed
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import preflight
from skyplane_orchestration.storage.other_tools import TOOLS, access_to

log = logging.getLogger(__name__)

_DEVICE: Final = Path("/dev/fuse")
#: A tool mounts and ends within so long.
_START_S, _END_S, _PAUSE_S = 60.0, 20.0, 0.05


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder that a tool serves; in `cache` rclone keeps what it has not uploaded."""

    folder: Path
    tool: str
    cache: Path
    process: subprocess.Popen[bytes]

    def wait(self) -> None:
        """Wait until somebody unmounts the folder. Raises MountFailed: the tool has failed."""
        if status := self.process.wait():
            raise MountFailed(f"{self.tool} has ended ({status}); {self.folder} is unmounted")

    def unsaved(self) -> int:
        """Files that are not uploaded, as rclone notes them on disk from their first write."""
        return sum(map(_is_unsaved, self.cache.glob("vfsMeta/**/*")))


def _is_unsaved(path: Path) -> bool:
    with suppress(FileNotFoundError):
        # An empty note is being written.
        return path.is_file() and '"Dirty": false' not in path.read_text()
    return False


@contextmanager
def mounted(
    place: Location, folder: Path, credentials: CredentialSources, read_only: bool
) -> Iterator[Mount]:
    """Serve a place in an empty folder until the block ends, then wait for uploads and unmount.

    Raises ConfigurationInvalid or StoreError before anything has changed, MountFailed later.
    """
    folder, tool = _mountable(place, folder)
    place = preflight.located(place, credentials)
    preflight.check_place(place, credentials)
    access = access_to(place, credentials)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skyplane-orch"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    cache = Path(tempfile.mkdtemp(prefix="mount-", dir=base))
    command, given = TOOLS[place.kind][tool](access, str(folder), str(cache), read_only)
    # The tool unmounts if this process is killed. Ctrl-C is for this process alone.
    setpriv = shutil.which("setpriv")
    process = subprocess.Popen(
        [*((setpriv, "--pdeathsig", "TERM", "--") if setpriv else ()), *command],
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in (os.environ | given).items() if value},
        start_new_session=True,
    )
    mount = Mount(folder, tool, cache, process)
    try:
        deadline = time.monotonic() + _START_S
        while not is_mounted(folder):
            if process.poll() is not None or time.monotonic() > deadline:
                raise MountFailed(f"{tool} does not mount {place.url!r}")
            time.sleep(_PAUSE_S)
        yield mount
    finally:
        _end(mount)


def _mountable(place: Location, folder: Path) -> tuple[Path, str]:
    """The folder without links, and the tool. Raises ConfigurationInvalid."""
    tools, problem = TOOLS.get(place.kind, {}), ""
    tool = next(filter(shutil.which, tools), "")
    try:
        folder = folder.resolve(strict=True)
        if any(folder.iterdir()) or is_mounted(folder):
            problem = f"{folder} is not empty; give an empty folder"
    except OSError as error:
        problem = f"{folder} cannot be used ({error.strerror}); give an empty folder"
    if not tools:
        problem = f"/{place.key} is a folder of this machine; use it as it is"
    elif not _DEVICE.exists():
        problem = f"there is no {_DEVICE}; load the module fuse, or give a container this device"
    elif not shutil.which("fusermount3"):
        problem = "fusermount3 is not on the PATH; install the package fuse3"
    elif not tool:
        problem = f"{' or '.join(tools)} is not on the PATH; install rclone, https://rclone.org"
    if problem:
        raise ConfigurationInvalid(problem)
    return folder, tool


def _end(mount: Mount) -> None:
    """Wait for uploads, unmount, end the tool. Raises MountFailed if not all is uploaded."""
    process, said = mount.process, False
    try:
        while process.poll() is None and is_mounted(mount.folder) and (left := mount.unsaved()):
            if not said:
                log.warning("waiting for the upload of %s", counted(left, "file"))
            said = True
            time.sleep(_PAUSE_S)
    finally:
        # The tool unmounts, unless the folder is in use or this process was interrupted again.
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        process.kill()
        process.wait()
        if is_mounted(mount.folder):
            subprocess.run(["fusermount3", "-uz", str(mount.folder)], check=False)
        if left := mount.unsaved():
            raise MountFailed(f"files not uploaded: {left}; copy them from {mount.cache}/vfs")
        shutil.rmtree(mount.cache, ignore_errors=True)


def is_mounted(folder: Path) -> bool:
    """Whether something is mounted there, also if it does not answer any more."""
    name = "".join(f"\\{ord(one):03o}" if one in " \t\n\\" else one for one in str(folder))
    rows = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    return any(row.split(" ")[1] == name for row in rows.splitlines())
