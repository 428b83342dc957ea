"""Podman as it works without privileges of its own: in a container, on any file system.

Run as `python -I -S container_tool.py STORAGE ARGUMENT...` it is the `podman` of a fake machine.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Final

SEARCH_PATH: Final = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: More than a container of one gateway has, and few enough for any machine.
_MOST_PROCESSES: Final = 1024
#: What boot scripts ask for.
_MANY_FILES: Final = 1 << 16


def storage_options(folder: Path) -> list[str]:
    """Options for a place of its own, also where no overlay file system can be mounted."""
    return [
        *("--storage-driver", "vfs"),
        *("--root", str(folder / "root")),
        *("--runroot", str(folder / "run")),
    ]


def podman(folder: Path) -> list[str]:
    return ["podman", *storage_options(folder), "--cgroup-manager", "cgroupfs", "--runtime", "runc"]


def become_podman(folder: Path, arguments: list[str]) -> None:
    """The image is there already, and this machine may allow fewer files."""
    os.environ.update(PATH=SEARCH_PATH, HOME="/root")
    if arguments[0] == "pull":
        arguments = ["image", "exists", arguments[-1]]
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(files, _MANY_FILES)
    limits = {f"nofile={_MANY_FILES}:{_MANY_FILES}": f"nofile={limit}:{limit}"}
    words = [limits.get(word, word) for word in arguments]
    if words[0] == "run":
        words[1:1] = ["--ulimit", f"nproc={_MOST_PROCESSES}:{_MOST_PROCESSES}"]
    os.execvp("podman", [*podman(folder), *words])


if __name__ == "__main__":
    become_podman(Path(sys.argv[1]), sys.argv[2:])
