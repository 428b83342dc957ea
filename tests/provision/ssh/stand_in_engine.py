"""Stands in for podman and docker on a host: the same commands, no container.

Run as `python -I -S stand_in_engine.py STATE PROGRAM SUPERVISOR ARGUMENT...`, where SUPERVISOR is
`fake_supervisor.py`. STATE is a folder with `facts.json`, where tests say what the engine is, and
a `state_name` for each host, with its images and containers. A container is a process of the
supervisor.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

#: Of `run`, without a value. All others have one.
_FLAGS: Final = frozenset(
    {"--interactive", "--rm", "--read-only", "--no-healthcheck", "--http-proxy=false"}
)

#: What each engine's `ps` understands (Podman 4.3, Docker 20).
_SHOWN: Final = {
    "podman": '{{.ID}} {{index .Labels "skyplane:directory"}}',
    "docker": '{{.ID}} {{.Label "skyplane:directory"}}',
}

State = dict[str, Any]


def state_name(address: str) -> str:
    """The file of a host's images and containers."""
    return f"state-{address}.json"


@contextlib.contextmanager
def held_state(folder: Path, address: str) -> Iterator[State]:
    path = folder / state_name(address)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        state = json.loads(file.read() or '{"images": {}, "containers": {}}')
        for number, container in list(state["containers"].items()):
            if container["pid"] and not _lives(container["pid"]):
                del state["containers"][number]
        yield state
        file.truncate(0)
        file.write(json.dumps(state))


def _lives(pid: int) -> bool:
    try:
        return b"--directory" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def main(folder: Path, program: str, supervisor: str, arguments: list[str]) -> None:
    facts = json.loads((folder / "facts.json").read_text())
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps([program, *arguments]) + "\n")
    match arguments:
        case ["info", *rest]:
            if "broken" in facts:
                sys.exit(facts["broken"])
            print(facts["info"].get(rest[-1] if rest else "", ""))
            return
        case ["run", *rest]:
            run(folder, facts, supervisor, rest)
            return
    with held_state(folder, os.environ["STAND_IN_HOST"]) as state:
        answer(state, facts, program, arguments)


def answer(state: State, facts: dict[str, Any], program: str, arguments: list[str]) -> None:
    images, containers = state["images"], state["containers"]
    match arguments:
        case ["image", "inspect", name]:
            if name not in images:
                sys.exit(f"{name}: image not known")
        case ["pull", "--quiet", name]:
            if name not in facts["registry"]:
                sys.exit(f"{name}: unauthorized: access to the resource is denied")
            images[name] = name.rpartition(":")[2]
        case ["tag", name, mark]:
            images[mark] = images[name]
        case ["rmi", name]:
            if any(one["image"] == images[name] for one in containers.values()):
                sys.exit(f"{name}: image is in use by a container")
            del images[name]
        case ["ps", "--all", "--no-trunc", "--filter", "label=skyplane:directory", _, shown]:
            if shown != _SHOWN[program]:
                sys.exit(f"Error: template: ps:1:21: executing {shown}")
            for number, one in containers.items():
                print(number, one["labels"]["skyplane:directory"])
        case ["rm", "--force", number]:
            del containers[number]
        case _:
            sys.exit(f"the stand-in does not know {arguments}")


def run(folder: Path, facts: dict[str, Any], supervisor: str, rest: list[str]) -> None:
    options: list[tuple[str, str]] = []
    while rest[0].startswith("--"):
        count = 1 if rest[0] in _FLAGS else 2
        options.append((rest[0], rest[1] if count > 1 else ""))
        rest = rest[count:]
    image, *words = rest
    labels = dict(value.split("=", 1) for name, value in options if name == "--label")
    faults = os.environ.get("STAND_IN_WORDS", "").split()
    with held_state(folder, os.environ["STAND_IN_HOST"]) as state:
        if image not in state["images"]:
            sys.exit(f"{image}: image not known")
        if words == ["--help"]:
            sys.exit(facts.get("no_run"))
        entry: dict[str, Any] = {"image": state["images"][image], "labels": labels, "pid": 0}
        state["containers"][secrets.token_hex(32)] = entry
        if "no_start" in facts:
            # `sys.exit` would keep the state from being written.
            process = None
        else:
            process = subprocess.Popen([sys.executable, "-S", supervisor, *faults, *words])
            entry["pid"] = process.pid
    sys.exit(facts["no_start"] if process is None else process.wait())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
