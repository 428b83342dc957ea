"""The files and processes of one user on one machine, as provisioners need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Machine(Protocol):
    """What `this_machine.ThisMachine` does, here or on another machine.

    Each verb raises OSError if the machine refuses, with the machine's own reason.
    """

    @property
    def name(self) -> str:
        """For messages; empty for this machine."""

    def make_root(self, path: Path) -> None:
        """Make a directory private to the user, with its parents, or check that it is."""

    def make_directory(self, path: Path) -> None:
        """Make a private directory; an existing one stays."""

    def exists(self, path: Path) -> bool: ...

    def directories(self, path: Path) -> list[str]:
        """Sorted names of the directories in a directory, which may be missing."""

    def fill(self, path: Path, files: Mapping[str, str]) -> None:
        """Make a private directory that has exactly these private files."""

    def write(self, path: Path, text: str) -> None:
        """Write a file, with mode 0600, atomically."""

    def read(self, path: Path) -> str | None:
        """The text of a file; None if it is missing."""

    def read_end(self, path: Path, max_bytes: int) -> str:
        """The end of a file; empty if it cannot be read."""

    def clear(self, path: Path) -> None:
        """Delete the content of a directory."""

    def remove(self, path: Path) -> None:
        """Delete a directory, which may be missing."""

    def try_lock(self, path: Path) -> int | None:
        """Lock a directory until `unlock` or the end of the caller; None if it is taken or gone."""

    def unlock(self, lock: int) -> None: ...

    def scan(self, run_root: Path, fleet_key: str) -> list[tuple[int, str, int]]:
        """(process id, directory, user id) of the fleet's gateways, sorted."""

    def send(self, directory: Path, pid: int, owner: int, number: int) -> None:
        """Send a signal to a process that `scan` has found, if it is still the same."""

    def start(
        self, directory: Path, argv: Sequence[str], search_path: Sequence[str], *, is_end: bool
    ) -> int:
        """Start the gateway whose files are in `directory`; the launcher's process id."""

    def poll(self, launcher: int) -> int | None:
        """The exit status of a launcher; None while it runs."""

    def free_ports(self, addresses: Sequence[str], ports: Sequence[int]) -> list[int]:
        """Those of the ports that are free on each of the addresses."""

    def processors(self) -> int: ...

    def wall_s(self) -> float:
        """The time of its clock, in seconds since 1970."""

    def open_files_limit(self) -> int:
        """Most open files of a process; negative if there is no limit."""
