"""Files and processes of gateways on this machine. The functions raise OSError."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import secrets
import shutil
import signal
import site
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
#: Limit for one scan on a machine that forks all the time.
_MAX_LISTINGS: Final = 5

#: The limit of processor time that a container sees of itself (cgroup v2), if it has one.
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")

#: Variables that every process needs, or that coverage needs.
_PASSED_TO_ALL: Final = frozenset({"PATH", "LANG", "TZ", "VIRTUAL_ENV"})
PASSED_PREFIXES: Final = ("LC_", "COVERAGE_")

PROXIES: Final = frozenset(
    name
    for lower in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    for name in (lower, lower.upper())
)

#: Variables for access to stores: trusted certificates and proxies, no credentials.
_PASSED_TO_ENDS: Final = frozenset(
    {
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "AWS_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        *PROXIES,
    }
)


# -- files


def make_root(path: Path) -> None:
    """Make a directory private to the user, with its parents, or check that it is."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise OSError(
            errno.EPERM, f"it is a symbolic link or belongs to user {status.st_uid}", str(path)
        )
    if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        path.chmod(0o700)


def directories(path: Path) -> list[str]:
    """Sorted names of the directories in a directory, which may be missing."""
    try:
        return sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []


def fill(path: Path, files: Mapping[str, str]) -> None:
    """Make a private directory that has exactly these private files."""
    remove(path)
    path.mkdir(mode=0o700)
    for name, text in files.items():
        write(path / name, text)


def write(path: Path, text: str) -> None:
    """Write a file, with mode 0600, atomically."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.rename(path)


def read(path: Path) -> str | None:
    """The text of a file; None if it is missing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_end(path: Path, max_bytes: int) -> str:
    """The end of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            return file.read(max_bytes).decode(errors="replace")
    except OSError:
        return ""


def clear(path: Path) -> None:
    """Delete the content of a directory."""
    for entry in path.iterdir():
        if entry.is_dir():
            remove(entry)
        else:
            entry.unlink()


def remove(path: Path) -> None:
    """Delete a directory, which may be missing."""
    # An ending gateway deletes its own files concurrently.
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        shutil.rmtree(path)


def try_lock(path: Path) -> int | None:
    """Lock a directory until the result is closed; None if it is taken or gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If a teardown has removed the directory, this lock is on the deleted one.
        current = path.stat().st_ino == os.fstat(descriptor).st_ino
    except (BlockingIOError, FileNotFoundError):
        current = False
    if not current:
        os.close(descriptor)
    return descriptor if current else None


# -- processes


def scan(run_root: Path, fleet_key: str) -> list[tuple[int, str, int]]:
    """(process id, directory, user id) of the fleet's gateways, sorted.

    A process belongs to the fleet if its command line has `--fleet <key>` and a `--config`
    in the fleet's directory, and if its user owns the gateway's directory, since any user can
    write such a command line. Zombies have no command line and do not count.
    """
    found: list[tuple[int, str, int]] = []
    seen: set[int] = set()
    # A process may fork and end before its command line is read. The next listing has its
    # child.
    for _ in range(_MAX_LISTINGS):
        listed = {int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()}
        if listed <= seen:
            break
        for pid in listed - seen:
            key, directory, user = _read(pid)
            is_ours = key == fleet_key and directory.parent == run_root / key
            if is_ours and user == _owner_of(directory):
                found.append((pid, str(directory), user))
        seen |= listed
    return sorted(found)


def send(directory: Path, pid: int, owner: int, number: int) -> None:
    """Send a signal to a process that `scan` has found, if it is still the same."""
    # The process id may have been reused.
    if _read(pid)[1:] == (directory, owner):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.Signals(number))


def start(directory: Path, argv: Sequence[str], *, is_end: bool) -> subprocess.Popen[bytes]:
    """Start the gateway whose files are in `directory`; its launcher.

    Airflow kills a task's process group and waits for its open pipes. So the gateway gets its
    own session, and inherits no file descriptor and no environment. `is_end`: it talks to object
    stores.
    """
    with (directory / "gateway.log").open("ab") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=True,
            start_new_session=True,
            cwd="/",
            env=_gateway_environment(directory, is_end=is_end),
        )


def open_files_limit() -> int:
    """Most open files of a process; negative if there is no limit."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if limit == resource.RLIM_INFINITY else limit


def usable_processors(quota: Path = _QUOTA) -> int:
    """Processors that this process may use: those of its affinity, within the quota's time."""
    allowed = len(os.sched_getaffinity(0))
    try:
        limit, period = quota.read_text(encoding="ascii").split()
    except OSError:
        return allowed
    return allowed if limit == "max" else max(1, min(allowed, int(limit) // int(period)))


def passed_names(*, is_end: bool) -> frozenset[str]:
    """Variables that a gateway inherits, besides those that begin with `PASSED_PREFIXES`."""
    return _PASSED_TO_ALL | _PASSED_TO_ENDS if is_end else _PASSED_TO_ALL


def _gateway_environment(directory: Path, *, is_end: bool) -> dict[str, str]:
    """The environment of a gateway, which gets its credentials over the control API alone.

    The home directory is the gateway's own, since SDKs look for profiles and tokens there.
    `is_end`: the gateway talks to object stores.
    """
    allowed = passed_names(is_end=is_end)
    scrubbed = {
        name: value
        for name, value in os.environ.items()
        if name in allowed or name.startswith(PASSED_PREFIXES)
    }
    search = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if search:
        # The gateway has another working directory, so entries must be absolute.
        scrubbed["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in search)
    scrubbed["HOME"] = str(directory)
    # Python would look for packages of `pip --user` in the new home.
    scrubbed["PYTHONUSERBASE"] = site.getuserbase()
    return scrubbed


def _owner_of(directory: Path) -> int:
    """The owner of a gateway's directory, or of the next parent: an ending gateway deletes it."""
    for folder in (directory, directory.parent, directory.parent.parent):
        with contextlib.suppress(FileNotFoundError):
            return folder.stat().st_uid
    return os.geteuid()


def _read(pid: int) -> tuple[str, Path, int]:
    """Fleet key, directory and user of a gateway's process; an empty key for any other."""
    entry = _PROC / str(pid)
    try:
        raw, owner = (entry / "cmdline").read_bytes(), entry.stat().st_uid
    except OSError:
        return "", Path(), -1  # The process has ended, or belongs to another user.
    words = [os.fsdecode(word) for word in raw.split(b"\0")]
    fleet_key, config = _value(words, "--fleet"), _value(words, "--config")
    if not fleet_key or not config:
        return "", Path(), -1
    return fleet_key, Path(config).parent, owner


def _value(words: list[str], option: str) -> str:
    position = words.index(option) + 1 if option in words else len(words)
    return words[position] if position < len(words) else ""
