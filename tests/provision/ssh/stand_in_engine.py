"""Stands in for podman and docker on a host: the same commands, no container.

Run as `python -I -S stand_in_engine.py STATE PROGRAM GATEWAY ARGUMENT...`, where GATEWAY is
`fake_gateway.py`. STATE is a folder with `facts.json`, where tests say what the engine is, and
`state.json`, with its images and containers. A container is a process of `fake_gateway.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

#: Of `run`, with the number of values of each.
_RUN_OPTIONS: Final = {
    "--detach": 0,
    "--rm": 0,
    "--read-only": 0,
    "--no-healthcheck": 0,
    "--http-proxy=false": 0,
    **dict.fromkeys(
        ("--pull", "--network", "--tmpfs", "--cap-drop", "--security-opt", "--log-driver"), 1
    ),
    **dict.fromkeys(
        ("--stop-timeout", "--user", "--ulimit", "--userns", "--label", "--mount", "--env"), 1
    ),
}

State = dict[str, Any]


@contextlib.contextmanager
def held_state(folder: Path) -> Iterator[State]:
    path = folder / "state.json"
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
        return b"--fleet" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def main(folder: Path, program: str, gateway: str, arguments: list[str]) -> None:
    facts = json.loads((folder / "facts.json").read_text())
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps([program, *arguments]) + "\n")
    match arguments:
        case ["info", "--format", "{{json .}}"]:
            if "broken" in facts:
                sys.exit(facts["broken"])
            print(json.dumps(facts["info"]))
            return
        case ["run", *rest]:
            run(folder, facts, gateway, rest)
            return
    with held_state(folder) as state:
        answer(state, facts, arguments)


def answer(state: State, facts: dict[str, Any], arguments: list[str]) -> None:
    images, containers = state["images"], state["containers"]
    match arguments:
        case ["image", "inspect", "--format", "{{.Id}}", name]:
            if name not in images:
                sys.exit(f"{name}: image not known")
        case ["image", "inspect", name]:
            if name not in images:
                sys.exit(f"{name}: image not known")
            digests = [other for other, image in images.items() if image == images[name]]
            shown = [other for other in digests if "@" in other]
            print(json.dumps([{"Id": images[name], "RepoDigests": shown}]))
        case ["pull", "--quiet", name]:
            if name not in facts["registry"]:
                sys.exit(f"{name}: unauthorized: access to the resource is denied")
            images[name] = name.rpartition(":")[2]
        case ["tag", name, mark]:
            images[mark] = images[name]
        case ["images", "--format", "{{.Tag}}", repository]:
            tags = [name.partition(":")[2] for name in images if name.startswith(f"{repository}:")]
            print("\n".join(tags))
        case ["rmi", name]:
            if any(one["image"] == images[name] for one in containers.values()):
                sys.exit(f"{name}: image is in use by a container")
            del images[name]
        case ["ps", "--all", "--quiet", *rest]:
            kind, _, value = rest[-1].partition("=")
            for number, one in containers.items():
                labels = [f"{name}={text}" for name, text in one["labels"].items()]
                if value in (labels if kind == "label" else [one["image"]]):
                    print(number)
        case ["inspect", "--format", "{{json .Config.Labels}}", number]:
            print(json.dumps(containers[number]["labels"]))
        case ["kill", *numbers]:
            for number in numbers:
                if containers[number]["pid"]:
                    os.kill(containers[number]["pid"], signal.SIGKILL)
        case ["rm", "--force", *numbers]:
            for number in numbers:
                del containers[number]
        case _:
            sys.exit(f"the stand-in does not know {arguments}")


def run(folder: Path, facts: dict[str, Any], gateway: str, rest: list[str]) -> None:
    options: list[tuple[str, str]] = []
    while rest and rest[0] in _RUN_OPTIONS:
        count = 1 + _RUN_OPTIONS[rest[0]]
        options.append((rest[0], rest[1] if count > 1 else ""))
        rest = rest[count:]
    image, *words = rest
    labels = dict(value.split("=", 1) for name, value in options if name == "--label")
    with held_state(folder) as state:
        if image not in state["images"]:
            sys.exit(f"{image}: image not known")
        if words == ["--help"]:
            if "no_run" in facts:
                sys.exit(facts["no_run"])
            return
        entry: dict[str, Any] = {"image": state["images"][image], "labels": labels, "pid": 0}
        state["containers"][secrets.token_hex(32)] = entry
        if "no_start" in facts:
            sys.exit(facts["no_start"])
        entry["pid"] = started(gateway, words)


def started(gateway: str, words: list[str]) -> int:
    """Start the gateway; its process id."""
    faults = os.environ.get("STAND_IN_WORDS", "").split()
    log = Path(words[words.index("--log-file") + 1])
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-S", gateway, *faults, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return process.pid


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
