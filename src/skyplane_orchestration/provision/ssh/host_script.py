"""What is done on a host, by a process that answers one request after the other.

The host has no library of ours: its Python gets this source, so it imports the standard library
only. It ends with its session. A request is a line of JSON on standard input, `{"verb", ...}`, then
its archive if it has one; the answer is a line on standard output, `skyplane` and `{"value"}` or
`{"error": [errno, reason]}`.

The directory of an instance is `ROOT/FLEET/INSTANCE.NUMBER`, with the instance's name quoted and
the number of the launch. Its `tags.json` is the only record of the instance. Whether it lives is
what the kernel's list of processes says.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import resource
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

_TAGS: Final = "tags.json"
_KEY: Final = "key"
_ENDING: Final = "ending"
_LOG: Final = "log"
_BOOT: Final = "boot.sh"
_IMAGE: Final = "image"
_ARCHIVE: Final = "gateway.zip"
#: Folder of the directories of trials, beside those of fleets.
_TRIALS: Final = "trials"
#: Engine -> how `ps` shows the label; Podman before 4.4 has no `.Label`, and Docker no map.
_ENGINES: Final = {
    "podman": '{{index .Labels "skyplane:directory"}}',
    "docker": '{{.Label "skyplane:directory"}}',
}
#: Of gateways, where the host's entry names none.
_FIRST_PORT: Final = 10_000
#: How often a command line is read that is empty, once in a millisecond.
_EXEC_LOOKS: Final = 1000
#: Of what a program says at its end, bytes.
_LAST_WORDS: Final = 600

Request = dict[str, Any]


# -- directories


def _root(request: Request) -> Path:
    return Path(request["root"] or f"/tmp/skyplane-orch-ssh-{os.geteuid()}")


def _make_root(path: Path) -> None:
    """Make the root, private to the account, or check that it is."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise OSError(1, f"{path} is a symbolic link or belongs to user {status.st_uid}")
    path.chmod(0o700)


@contextlib.contextmanager
def _locked(root: Path, how: int) -> Iterator[bool]:
    """Whether the root exists, which nobody removes during the block."""
    while True:
        try:
            lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            if how == fcntl.LOCK_EX:
                _make_root(root)
                continue
            yield False
            return
        except NotADirectoryError as error:
            raise OSError(error.errno, f"{root} is a symbolic link or no directory") from error
        try:
            fcntl.flock(lock, how)
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(lock).st_ino == root.stat().st_ino:
                    yield True
                    return
        finally:
            os.close(lock)


def _instances(root: Path) -> list[Path]:
    return sorted(path.parent for path in root.glob(f"*/*/{_TAGS}"))


def _clear_unfinished(root: Path) -> None:
    """Remove what cut-off launches and ended trials have left, while nobody launches."""
    processes = _processes()
    for directory in root.glob("*/*"):
        is_whole = not directory.is_dir() or (directory / _TAGS).exists()
        if not is_whole and not _pids(directory, processes):
            shutil.rmtree(directory)


def _write(path: Path, content: bytes) -> None:
    """Make a file that is whole from its first moment. Raises FileExistsError."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    draft.write_bytes(content)
    try:
        os.link(draft, path)
    finally:
        draft.unlink()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


# -- processes


def _processes() -> dict[int, list[str]]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = command_line(entry).split(b"\0")
                found[int(entry.name)] = [os.fsdecode(word) for word in words]
    return found


def command_line(entry: Path) -> bytes:
    """Of a process, for which the kernel shows nothing while an `exec` is under way.

    Raises OSError for one that is gone.
    """
    for _ in range(_EXEC_LOOKS):
        words = (entry / "cmdline").read_bytes()
        # A process that has ended, and a thread of the kernel, has no memory.
        if words or (entry / "statm").read_bytes().startswith(b"0 "):
            break
        time.sleep(0.001)
    return words


def _is_of(directory: Path, words: list[str]) -> bool:
    """Whether a command line is that of the boot script, the supervisor or a gateway."""
    own = str(directory)
    return any(
        word == f"{own}/{_BOOT}"
        or word.startswith(f"{own}/skyplane-")
        or (word == own and previous == "--directory")
        for previous, word in zip(["", *words], words, strict=False)
    )


def _pids(directory: Path, processes: dict[int, list[str]]) -> list[int]:
    return [pid for pid, words in processes.items() if _is_of(directory, words)]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # The boot script leads a session, of which installers and engines are part too.
        if os.getsid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


# -- containers


def _engine(program: str, *words: str) -> str | None:
    """What an engine prints; None if it fails."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=50.0)
        return None if done.returncode else done.stdout
    return None


def _remove_containers(root: Path) -> None:
    """Remove containers whose directory is gone.

    An engine removes them when they end. Those that it could not start stay, and those from before
    a restart of the machine. None of them has a process.
    """
    listing = ("ps", "--all", "--no-trunc", "--filter", "label=skyplane:directory")
    for engine, label in _ENGINES.items():
        shown = _engine(engine, *listing, "--format", f"{{{{.ID}}}} {label}")
        for line in (shown or "").splitlines():
            number, _, directory = line.partition(" ")
            if Path(directory).parent.parent == root and not Path(directory).exists():
                _engine(engine, "rm", "--force", number)


def _free_image(root: Path, image: str) -> None:
    """Remove an image that a boot script has brought, unless an instance or a trial needs it."""
    needed = {json.loads(_read(one / _TAGS)).get("image") for one in _instances(root)}
    needed |= {_read(one) for one in root.glob(f"{_TRIALS}/*/{_IMAGE}")}
    if not image or image in needed:
        return
    mark = f"localhost/skyplane-brought:{image.rpartition(':')[2]}"
    for engine in _ENGINES:
        if _engine(engine, "image", "inspect", mark) is not None:
            _engine(engine, "rmi", image)
            # The mark goes last, so that another attempt finds what is left.
            _engine(engine, "rmi", mark)


# -- verbs


def _described(directory: Path, processes: dict[int, list[str]]) -> Request:
    state = "ended"
    if _pids(directory, processes):
        state = "ending" if (directory / _ENDING).exists() else "running"
    tags = json.loads(_read(directory / _TAGS))
    return {**tags, "path": str(directory), "key": _read(directory / _KEY), "state": state}


def describe(request: Request, _: BinaryIO) -> Any:
    """All instances of the account, and what the machine is."""
    root = _root(request)
    with _locked(root, fcntl.LOCK_SH) as exists:
        processes = _processes()
        found = [_described(one, processes) for one in _instances(root)] if exists else []
    # Those of the account, within the quota of a container.
    processors = len(os.sched_getaffinity(0))
    quota, period = _read(Path("/sys/fs/cgroup/cpu.max")).partition(" ")[::2]
    if quota.isdecimal():
        processors = min(processors, max(1, int(quota) // int(period)))
    return {
        "instances": found,
        "processors": processors,
        "version": list(sys.version_info[:3]),
        "now_unix_s": time.time(),
    }


def launch(request: Request, stdin: BinaryIO) -> Any:
    """Make an instance's directory and start its boot script, unless a worker has done so.

    An instance that has ended under the same number takes the next number.
    """
    root, tags, number = _root(request), request["tags"], request["number"]
    archive = stdin.read(request["archive_bytes"])
    if len(archive) < request["archive_bytes"]:
        raise OSError(5, "the session has ended before the archive was there")
    with _locked(root, fcntl.LOCK_EX):
        _clear_unfinished(root)
        if request["image"]:
            _remove_containers(root)
        try:
            ports = _free_ports(root, request)
        except OSError:
            _remove_empty(root)
            raise
        fleet = root / tags["fleet"]
        fleet.mkdir(mode=0o700, exist_ok=True)
        while True:
            directory = fleet / f"{request['name']}.{number}"
            try:
                directory.mkdir(mode=0o700)
                break
            except FileExistsError:
                if _pids(directory, processes := _processes()):
                    return _described(directory, processes)
                number += 1
        document = {**tags, "ports": ports, "launched": time.time(), "image": request["image"]}
        _write_boot(directory, request, archive, ports[len(ports) // 2])
        _write(directory / _TAGS, json.dumps(document).encode())
        with (directory / _LOG).open("wb") as log:
            _boot(directory, log)
        return _described(directory, _processes())


def _boot(directory: Path, output: BinaryIO | int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", str(directory / _BOOT)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        start_new_session=True,
    )


def _write_boot(directory: Path, request: Request, archive: bytes, port: int = 0) -> None:
    """The port is that of the enrolment, and later the first one for data."""
    if archive:
        _write(directory / _ARCHIVE, archive)
    script = request["script"].replace("@DIRECTORY@", str(directory)).replace("@PORT@", str(port))
    _write(directory / _BOOT, script.replace("@ROOT@", str(_root(request))).encode())


def _free_ports(root: Path, request: Request) -> list[int]:
    """Ports for control and data of each gateway, which no instance of the account has."""
    taken = {
        port for one in _instances(root) for port in json.loads(_read(one / _TAGS)).get("ports", ())
    }
    count = 2 * int(request["processes"])
    first, last = request["port_range"]
    ports: Sequence[int] = range(first, last + 1)
    if not first:
        # The kernel may give a port of its range to a connection before the gateway listens.
        end = int(_read(Path("/proc/sys/net/ipv4/ip_local_port_range")).split()[0])
        ports = range(_FIRST_PORT, end if end > 2 * _FIRST_PORT else 1 << 16)
        ports = random.sample(ports, len(ports))
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in ports:
            if len(found) == count:
                break
            if port in taken:
                continue
            with contextlib.suppress(OSError):
                for address in dict.fromkeys(request["addresses"]):
                    stack.enter_context(socket.create_server((address, port)))
                found.append(port)
    if len(found) < count:
        where = f"of {first}-{last} " if first else ""
        raise OSError(98, f"{len(found)} ports {where}are free, and its gateways need {count}")
    return found


def pin(request: Request, _: BinaryIO) -> Any:
    """The key of an instance: the given one, unless another worker has written one before."""
    path = Path(request["path"]) / _KEY
    with contextlib.suppress(FileExistsError):
        _write(path, request["key_id"].encode())
    return _read(path)


def terminate(request: Request, _: BinaryIO) -> Any:
    """SIGTERM to the processes of instances, and SIGKILL after the grace."""
    for path in map(Path, request["paths"]):
        if not path.is_dir():
            continue
        with contextlib.suppress(FileExistsError):
            _write(path / _ENDING, f"{time.monotonic()}".encode())
        is_late = time.monotonic() > float(_read(path / _ENDING) or 0.0) + request["grace_s"]
        for pid in _pids(path, _processes()):
            _signal(pid, signal.SIGKILL if is_late else signal.SIGTERM)
    return None


def remove(request: Request, _: BinaryIO) -> Any:
    """Remove the directories of ended instances, and roots without any; the rest."""
    root, left = _root(request), []
    images: set[str] = set()
    with _locked(root, fcntl.LOCK_EX):
        processes = _processes()
        _clear_unfinished(root)
        for path in map(Path, request["paths"]):
            if _pids(path, processes):
                left.append(str(path))
            elif path.is_dir() and path.parent.parent == root:
                images.add(json.loads(_read(path / _TAGS)).get("image", ""))
                shutil.rmtree(path)
        if any(images):
            _remove_containers(root)
        for image in images:
            _free_image(root, image)
        _remove_empty(root)
    return left


def _remove_empty(root: Path) -> None:
    for empty in (*root.glob("*"), root):
        with contextlib.suppress(OSError):
            empty.rmdir()


def trial(request: Request, stdin: BinaryIO) -> Any:
    """All that keeps instances from running here; it runs a boot script that starts no gateway.

    It leaves the environment of gateways, which all fleets use.
    """
    root, archive = _root(request), stdin.read(request["archive_bytes"])
    lacks = []
    with _locked(root, fcntl.LOCK_EX):
        try:
            for address in dict.fromkeys(request["addresses"]):
                try:
                    socket.create_server((address, 0)).close()
                except OSError as error:
                    reason = f"gateways cannot listen on its address {address}: {error.strerror}"
                    raise OSError(error.errno, reason) from error
            _free_ports(root, request)
        except OSError as error:
            lacks.append(error.strerror)
        _clear_unfinished(root)
        directory = root / _TRIALS / secrets.token_hex(8)
        directory.mkdir(mode=0o700, parents=True)
        # As long as its script runs, another trial or the end of a fleet leaves it the image.
        _write(directory / _IMAGE, request["image"].encode())
        _write_boot(directory, request, archive)
        script = _boot(directory, subprocess.PIPE)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= hard < request["open_files"]:
        lacks.append(
            f"a gateway needs {request['open_files']} open files, and the account may have {hard}"
            " (`ulimit -Hn`); raise `nofile` in /etc/security/limits.conf"
        )
    said, _ = script.communicate()
    if script.returncode:
        words = said[-_LAST_WORDS:].decode(errors="replace").split("\n")
        lacks.append("; ".join(word for word in words if word))
    with _locked(root, fcntl.LOCK_EX):
        _clear_unfinished(root)
        _free_image(root, request["image"])
        _remove_empty(root)
    return lacks


def tail(request: Request, _: BinaryIO) -> Any:
    """The end of an instance's log."""
    try:
        with (Path(request["path"]) / _LOG).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - request["max_bytes"]))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def main() -> None:
    """Answer requests until there is none."""
    os.umask(0o077)
    stdin = sys.stdin.buffer
    # The last line is cut off if the session has ended.
    while (line := stdin.readline()).endswith(b"\n"):
        request = json.loads(line)
        verbs = (describe, launch, pin, terminate, remove, trial, tail)
        verb = next(verb for verb in verbs if verb.__name__ == request["verb"])
        try:
            answer = {"value": verb(request, stdin)}
        except OSError as error:
            answer = {"error": [error.errno, error.strerror or str(error)]}
        os.write(1, b"skyplane " + json.dumps(answer).encode() + b"\n")
