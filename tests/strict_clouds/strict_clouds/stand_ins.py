"""The programs that a boot script finds on a fake machine, in place of real ones.

Run as `python -I -S stand_ins.py MACHINE_DIRECTORY NAME ARGUMENT...`, by wrappers in the machine's
`bin`. Each knows what boot scripts use of it, and refuses everything else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

#: Of `docker run`, with the number of values of each.
_RUN_OPTIONS: Final = {
    "--interactive": 0,
    "--rm": 0,
    "--read-only": 0,
    "--network": 1,
    "--user": 1,
    "--tmpfs": 1,
    "--cap-drop": 1,
    "--security-opt": 1,
    "--ulimit": 1,
    "--log-driver": 1,
    "--stop-timeout": 1,
}

#: Of every cloud's metadata service.
_METADATA: Final = "http://169.254.169.254"

#: Package -> the programs that it brings.
_PACKAGES: Final = {
    "docker": ("docker",),
    "docker.io": ("docker",),
    "podman": ("podman",),
    "curl": ("curl",),
    "ca-certificates": (),
    "python3.11": ("python3.11",),
    "python3": ("python3",),
    "python3-venv": (),
}


class Machine:
    """The machine's files, as `world.py` made them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.facts = json.loads((directory / "machine.json").read_text())

    def note(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def install(self, program: str) -> None:
        write_wrapper(self.directory, program, self.facts["python"])

    def run_program(self, arguments: list[str]) -> NoReturn:
        """Become the machine's program, with nothing of this environment."""
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": "/",
            "TMPDIR": str(self.directory / "tmp"),
            "PYTHONUNBUFFERED": "1",
            **self.facts["environment"],
        }
        os.chdir("/")
        command = self.facts["command"]
        os.execve(command[0], [*command, *arguments], environment)


def write_wrapper(directory: Path, program: str, python: str, *, at: Path | None = None) -> None:
    """Make a program of the machine that runs its stand-in."""
    path = at or directory / "bin" / program
    command = f"{python} -I -S {Path(__file__).absolute()} '{directory}' {program}"
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)


def refuse(program: str, arguments: list[str]) -> NoReturn:
    sys.exit(f"{program}: the stand-in does not know {arguments}")


def docker(machine: Machine, arguments: list[str], program: str = "docker") -> None:
    image = machine.facts["image"]
    if program == "docker" and "docker" not in read_lines(machine, "started"):
        sys.exit("docker: Cannot connect to the Docker daemon")
    match arguments:
        case ["pull", "--quiet", name]:
            if name != image:
                sys.exit(f"{program}: pull access denied for {name}")
            machine.note("pulled", name)
        case ["run", *rest]:
            while rest and rest[0] in _RUN_OPTIONS:
                rest = rest[1 + _RUN_OPTIONS[rest[0]] :]
            pulled = (machine.directory / "pulled").exists()
            if not rest or rest[0] != image or not pulled:
                refuse(program, arguments)
            machine.run_program(rest[1:])
        case _:
            refuse(program, arguments)


def podman(machine: Machine, arguments: list[str]) -> None:
    docker(machine, arguments, "podman")


def hostname(machine: Machine, arguments: list[str]) -> None:
    if arguments != ["-I"]:
        refuse("hostname", arguments)
    print(machine.facts["address"], "fd77::1 ")


def shutdown(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case ["-P", "now"]:
            machine.note("why_ended", "shutdown -P now")
            os.kill(int((machine.directory / "pid").read_text()), signal.SIGTERM)
        case ["-P", when] if when.startswith("+") and when[1:].isdecimal():
            machine.note("hard_end_minutes", when[1:])
        case _:
            refuse("shutdown", arguments)


def systemctl(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case ["set-default", target]:
            machine.note("default_target", target)
        case ["start", unit] if (machine.directory / "bin" / unit).exists():
            machine.note("started", "\n".join([*read_lines(machine, "started"), unit]))
        case _:
            refuse("systemctl", arguments)


def dnf(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case ["-q", "list", package]:
            if package not in machine.facts["packages"]:
                sys.exit(f"dnf: no matching package {package}")
        case ["install", "-y", "-q", *packages]:
            install(machine, packages)
        case _:
            refuse("dnf", arguments)


def apt_get(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case ["update", "-q"]:
            machine.note("apt_lists", "")
        case ["-o", "DPkg::Lock::Timeout=300", "install", "-y", "-q", option, *packages]:
            if (
                option != "--no-install-recommends"
                or not (machine.directory / "apt_lists").exists()
            ):
                refuse("apt-get", arguments)
            install(machine, packages)
        case _:
            refuse("apt-get", arguments)


def install(machine: Machine, packages: list[str]) -> None:
    for package in packages:
        if package not in machine.facts["packages"]:
            sys.exit(f"unable to locate package {package}")
        for program in _PACKAGES[package]:
            machine.install(program)


def curl(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case [
            "--fail", "--silent", "--noproxy", "*", "--max-time", _,
            "--header", "Metadata:true", url,
        ] if url.startswith(_METADATA):  # fmt: skip
            at = machine.facts["metadata_url"] + url.removeprefix(_METADATA)
            print(answer_of(urllib.request.Request(at, headers={"Metadata": "true"})))
        case [
            "--fail", "--silent", "--max-time", _, "--config", "-", "--request", "DELETE", url,
        ]:  # fmt: skip
            name, _, value = sys.stdin.read().strip()[len('header = "') : -1].partition(": ")
            answer_of(urllib.request.Request(url, headers={name: value}, method="DELETE"))
        case _:
            download(machine, arguments)


def answer_of(request: urllib.request.Request) -> str:
    """What a server says; ends as curl does where it refuses."""
    try:
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            return str(answer.read().decode())
    except OSError as error:
        sys.exit(f"curl: (22) {error}")


def download(machine: Machine, arguments: list[str]) -> None:
    path, url = arguments[arguments.index("--output") + 1], arguments[-1]
    if url != machine.facts["wheel_url"]:
        sys.exit("curl: (22) The requested URL returned error: 404")
    Path(path).write_bytes(bytes.fromhex(machine.facts["wheel_hex"]))


def python(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case ["-c", text] if "version_info" in text:
            return
        case ["-m", "venv", directory]:
            programs = Path(directory) / "bin"
            programs.mkdir(parents=True)
            for name in ("pip", machine.facts["script"]):
                executable = machine.facts["python"]
                write_wrapper(machine.directory, name, executable, at=programs / name)
        case ["-m", "zipfile", "-e", archive, directory]:
            with zipfile.ZipFile(archive) as content:
                content.extractall(directory)
        case _:
            refuse("python", arguments)


def pip(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case [
            "install", "--quiet", "--no-cache-dir", "--no-input", "--no-deps",
            "--only-binary", ":all:", "--require-hashes", "--requirement", pins,
        ]:  # fmt: skip
            requirements = Path(pins).read_text().replace("\\\n", "").splitlines()
            if loose := [line for line in requirements if "==" not in line.partition(";")[0]]:
                sys.exit(f"pip: {loose} have no exact version")
            if bare := [line for line in requirements if " --hash=sha256:" not in line]:
                sys.exit(f"pip: {bare} have no hash")
            if not requirements:
                sys.exit(f"pip: {pins} pins nothing")
            machine.note("pip_required", pins)
        case [
            "install", "--quiet", "--no-cache-dir", "--no-input", "--no-deps", "--no-index", wheel,
        ]:  # fmt: skip
            if not Path(wheel).is_file():
                sys.exit(f"pip: {wheel} is no file")
            if not (machine.directory / "pip_required").exists():
                sys.exit("pip: nothing that the wheel needs is installed")
            machine.note("pip_installed", wheel)
        case _:
            refuse("pip", arguments)


def installed_script(machine: Machine, arguments: list[str]) -> None:
    if not (machine.directory / "pip_installed").exists():
        sys.exit(f"{machine.facts['script']}: not installed")
    machine.run_program(arguments)


def setpriv(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case [
            "--reuid", "10001", "--regid", "10001", "--clear-groups", "--no-new-privs",
            "--inh-caps=-all", *command,
        ]:  # fmt: skip
            os.execvp(command[0], command)
        case _:
            refuse("setpriv", arguments)


def read_lines(machine: Machine, name: str) -> list[str]:
    path = machine.directory / name
    return path.read_text().splitlines() if path.exists() else []


STAND_INS: Final[dict[str, Callable[[Machine, list[str]], None]]] = {
    "apt-get": apt_get,
    "curl": curl,
    "dnf": dnf,
    "docker": docker,
    "hostname": hostname,
    "pip": pip,
    "podman": podman,
    "python3": python,
    "python3.11": python,
    "setpriv": setpriv,
    "shutdown": shutdown,
    "systemctl": systemctl,
}


if __name__ == "__main__":
    STAND_INS.get(sys.argv[2], installed_script)(Machine(Path(sys.argv[1])), sys.argv[3:])
