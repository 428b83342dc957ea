"""The programs of a cluster: kube-apiserver and kube-controller-manager, and Debian's etcd.

    python -m tests.provision.kubernetes.programs

builds them once for each user, which takes ten minutes and a gigabyte of the network's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.faults.go_programs import Unavailable, make_once

API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
ETCD: Final = "etcd"

_VERSION: Final = "1.34.4"
_MODULE: Final = f"k8s.io/kubernetes@v{_VERSION}"
#: The libraries of that release, which its own go.mod replaces by folders.
_LIBRARIES: Final = f"v0{_VERSION[1:]}"
_STAGED: Final = re.compile(r"^\s*(k8s\.io/\S+) => \./staging", re.MULTILINE)
_COMMANDS: Final = {
    API_SERVER: "NewAPIServerCommand",
    CONTROLLER_MANAGER: "NewControllerManagerCommand",
}
_MAIN: Final = """package main

import (
\t"os"

\t"k8s.io/component-base/cli"
\t"k8s.io/kubernetes/cmd/%s/app"
)

func main() {
\tos.Exit(cli.Run(app.%s()))
}
"""


def program(name: str, within_s: float | None = 1.0) -> Path:
    """A program of the user's cache. Raises Unavailable: it cannot be made within the time."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = home / "skyplane-orchestration" / "bin" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    make = _unpack_etcd if name == ETCD else _build
    make_once(target, name, lambda: make(target, within_s), within_s)
    return target


def _build(target: Path, within_s: float | None) -> None:
    go = shutil.which("go")
    if go is None:
        raise Unavailable(f"there is no {target.name} and no go to build it with")
    with tempfile.TemporaryDirectory(prefix="kubernetes-", ignore_cleanup_errors=True) as scratch:

        def run(*words: str) -> str:
            return subprocess.run(
                [go, *words],
                cwd=scratch,
                env={**os.environ, "GOFLAGS": "-modcacherw"},
                check=True,
                capture_output=True,
                text=True,
                timeout=within_s,
            ).stdout

        of_release = json.loads(run("mod", "download", "-json", _MODULE))["GoMod"]
        staged = _STAGED.findall(Path(of_release).read_text())
        folder = Path(scratch)
        (folder / "go.mod").write_text(
            f"module test/kubernetes\n\ngo 1.24.0\n\nrequire {_MODULE.replace('@', ' ')}\n"
            + "".join(f"replace {one} => {one} {_LIBRARIES}\n" for one in staged)
        )
        (folder / "main.go").write_text(_MAIN % (target.name, _COMMANDS[target.name]))
        run("mod", "tidy")
        run("build", "-p", "1", "-ldflags", "-s -w", "-o", "program", ".")
        shutil.move(folder / "program", target)


def _unpack_etcd(target: Path, within_s: float | None) -> None:
    """The package's files alone: installed, it would start a service."""
    found = shutil.which(ETCD)
    if found is not None:
        shutil.copy2(found, target)
        return
    if shutil.which("apt-get") is None:
        raise Unavailable("there is no etcd, and no apt-get to download etcd-server with")
    with tempfile.TemporaryDirectory() as scratch:
        for words in (["apt-get", "download", "etcd-server"], ["sh", "-c", "dpkg -x *.deb ."]):
            subprocess.run(
                words, cwd=scratch, check=True, capture_output=True, text=True, timeout=within_s
            )
        shutil.move(f"{scratch}/usr/bin/etcd", target)


def main() -> None:
    for name in (ETCD, API_SERVER, CONTROLLER_MANAGER):
        print(f"{name}: {program(name, None)}", flush=True)


if __name__ == "__main__":
    main()
