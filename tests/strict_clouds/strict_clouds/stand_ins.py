"""The programs that a boot script finds on a fake machine, in place of real ones.

Run as `python -I -S stand_ins.py MACHINE_DIRECTORY NAME ARGUMENT...`, by wrappers in the machine's
`bin`. Each knows what boot scripts use of it, and refuses everything else.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

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

#: Of this machine, as images name it.
PROCESSOR: Final = {"aarch64": "arm64"}.get(platform.machine(), "amd64")


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
            login = machine.facts["login"]
            is_in = not login or f"{login['user']} {login['host']}" in read_lines(machine, "logins")
            if name != image or not is_in:
                sys.exit(f"{program}: pull access denied for {name}")
            machine.note("pulled", name)
        case ["login", "--username", user, "--password-stdin", host]:
            if sys.stdin.read() != machine.facts["login"].get("password"):
                sys.exit(f"{program}: unauthorized: authentication required")
            machine.note("logins", f"{user} {host}")
            print("Login Succeeded")
        case ["load", "--quiet", "--input", archive]:
            machine.note("loaded", json.dumps(processors_of(archive)))
            for name in loaded(machine):
                print(f"Loaded image: {name}")
        case ["image", "inspect", "--format", "{{.Architecture}}", name]:
            print(loaded(machine)[name])
        case ["run", *rest]:
            while rest and rest[0] in _RUN_OPTIONS:
                rest = rest[1 + _RUN_OPTIONS[rest[0]] :]
            if not rest or rest[0] not in {*read_lines(machine, "pulled"), *loaded(machine)}:
                refuse(program, arguments)
            if loaded(machine).get(rest[0], PROCESSOR) != PROCESSOR:
                sys.exit("exec format error")
            machine.run_program(rest[1:])
        case _:
            refuse(program, arguments)


def processors_of(archive: str) -> dict[str, str]:
    """Name of an image -> its kind of processor, of a file of `docker save`."""
    with tarfile.open(archive) as tar:

        def member(name: str) -> Any:
            file = tar.extractfile(name)
            assert file is not None
            return json.load(file)

        return {
            name: member(image["Config"])["architecture"]
            for image in member("manifest.json")
            for name in image["RepoTags"]
        }


def loaded(machine: Machine) -> dict[str, str]:
    """What `docker load` has brought."""
    found: dict[str, str] = json.loads("".join(read_lines(machine, "loaded")) or "{}")
    return found


def podman(machine: Machine, arguments: list[str]) -> None:
    docker(machine, arguments, "podman")


def hostname(machine: Machine, arguments: list[str]) -> None:
    if arguments != ["-I"]:
        refuse("hostname", arguments)
    print(machine.facts["address"], "fd77::1 ")


def ip(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case [
            "rule", "add", "pref", "1", "uidrange", "10001-10001", "to", "169.254.169.254",
            "ipproto", "tcp", "dport", "54-65534", "prohibit",
        ]:  # fmt: skip
            machine.note("metadata_hidden", "from 10001")
        case _:
            refuse("ip", arguments)


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
        case ["mask", "--runtime", _] | ["stop", _]:
            # No machine here has such a unit.
            sys.exit(5)
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
        for program in machine.facts["packages"][package]:
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
            refuse("curl", arguments)


def answer_of(request: urllib.request.Request) -> str:
    """What a server says; ends as curl does where it refuses."""
    try:
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            return str(answer.read().decode())
    except OSError as error:
        sys.exit(f"curl: (22) {error}")


def python(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case ["-c", text] if "version_info" in text:
            return
        case ["-m", "venv", "--without-pip", directory]:
            programs = Path(directory) / "bin"
            programs.mkdir(parents=True)
            at = programs / "python"
            write_wrapper(machine.directory, "venv-python", machine.facts["python"], at=at)
        case ["-m", "zipfile", "-e", archive, directory]:
            with zipfile.ZipFile(archive) as content:
                content.extractall(directory)
        case ["-", cloud, host]:
            compile(sys.stdin.read(), "the login", "exec")
            login = machine.facts["login"]
            if (cloud, host) != (login.get("cloud"), login.get("host")):
                sys.exit(f"no identity for {host}")
            sys.stdout.write(login["password"])
        case [program, *_] if program == "-" or program.endswith("/receive.py"):
            environment = {"PATH": os.environ["PATH"], **machine.facts["environment"]}
            command = [machine.facts["python"], *arguments]
            os.execve(command[0], command, environment)
        case _:
            refuse("python", arguments)


def venv_python(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case [
            "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-input", "--no-deps",
            "--disable-pip-version-check", *source,
            "--only-binary", ":all:", "--require-hashes", "--requirement", pins,
        ]:  # fmt: skip
            pip_install(machine, source, Path(pins))
        case ["-m", "compileall", "-q", package]:
            if not list(Path(package).glob("*.py")):
                sys.exit(f"compileall: {package} has no module")
        case ["-m", module, *rest] if module == machine.facts["module"]:
            if not (machine.directory / "pip_required").exists():
                sys.exit(f"{module}: its requirements are not installed")
            machine.run_program(rest)
        case _:
            refuse("python", arguments)


def pip_install(machine: Machine, source: list[str], pins: Path) -> None:
    """Check what the real pip would: it is there, and each pin has a version and hashes."""
    if not Path(os.environ["PYTHONPATH"], "pip", "__main__.py").exists():
        sys.exit("No module named pip")
    match source:
        case []:
            pass
        case ["--no-index", "--find-links", folder]:
            if not list(Path(folder).glob("*.whl")):
                sys.exit(f"pip: {folder} has no wheel")
        case _:
            refuse("pip", source)
    requirements = pins.read_text().replace("\\\n", "").splitlines()
    if loose := [line for line in requirements if "==" not in line.partition(";")[0]]:
        sys.exit(f"pip: {loose} have no exact version")
    if bare := [line for line in requirements if " --hash=sha256:" not in line]:
        sys.exit(f"pip: {bare} have no hash")
    if not requirements:
        sys.exit(f"pip: {pins} pins nothing")
    machine.note("pip_required", str(pins))


def setpriv(machine: Machine, arguments: list[str]) -> None:
    match arguments:
        case [
            "--reuid", "10001", "--regid", "10001", "--clear-groups", "--no-new-privs",
            "--inh-caps=-all", *command,
        ] | [
            "--reuid", "10001", "--regid", "10001", "--clear-groups", "--no-new-privs",
            "--inh-caps=-all,+net_bind_service", "--ambient-caps=-all,+net_bind_service", *command,
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
    "ip": ip,
    "podman": podman,
    "python3": python,
    "python3.11": python,
    "setpriv": setpriv,
    "shutdown": shutdown,
    "systemctl": systemctl,
    "venv-python": venv_python,
}


if __name__ == "__main__":
    STAND_INS[sys.argv[2]](Machine(Path(sys.argv[1])), sys.argv[3:])
