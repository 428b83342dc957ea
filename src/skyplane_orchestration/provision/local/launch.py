"""Starting a gateway as a process that outlives whoever started it.

Airflow kills a task's process group and waits for its open pipes, so a gateway gets its
own session, no inherited descriptor and no inherited environment.
"""

from __future__ import annotations

import os
import resource
import site
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from skyplane_gateway.config import files_needed
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.local.run_directory import GatewayFiles

#: What any process needs to run at all, or to be measured while it does.
_PASSED_TO_ALL: Final = frozenset({"PATH", "LANG", "TZ", "VIRTUAL_ENV"})
_PREFIXES_PASSED_TO_ALL: Final = ("LC_", "COVERAGE_")

#: What reaches an object store from inside a company: trust and proxies, not credentials.
_PASSED_TO_ENDS: Final = frozenset(
    {
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "AWS_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        *(
            name
            for lower in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
            for name in (lower, lower.upper())
        ),
    }
)


def gateway_environment(
    environment: Mapping[str, str], directory: Path, *, is_end: bool
) -> dict[str, str]:
    """What a gateway sees of the environment of whoever starts it.

    The home directory is the gateway's own: a cloud's SDK looks for profiles and tokens
    there, and a gateway must use only what it is handed over the control API.

    Args:
        environment: of the starting process.
        is_end: it is a source or a sink and talks to object stores.
    """
    allowed = _PASSED_TO_ALL | _PASSED_TO_ENDS if is_end else _PASSED_TO_ALL
    scrubbed = {
        name: value
        for name, value in environment.items()
        if name in allowed or name.startswith(_PREFIXES_PASSED_TO_ALL)
    }
    search = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if search:
        # A relative entry would mean another place in the gateway's working directory.
        scrubbed["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in search)
    scrubbed["HOME"] = str(directory)
    # Without it packages installed with `pip --user` would be looked for in the new home.
    scrubbed["PYTHONUSERBASE"] = site.getuserbase()
    return scrubbed


def require_open_files(connections: int, store_threads: int) -> None:
    """See that a gateway will be able to open what it needs; it raises its own soft limit.

    Args:
        connections: data connections of the gateway that has most.
        store_threads: requests to stores at the same time.

    Raises ConfigurationInvalid when the hard limit of this process is lower.
    """
    needed = files_needed(connections, store_threads)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise ConfigurationInvalid(
            f"a gateway of this plan needs {needed} open files, and this process may have"
            f" {limit} (`ulimit -Hn`); run it with a hard limit of at least {needed}: `ulimit -n"
            f" {needed}` as root, `nofile` in /etc/security/limits.conf, LimitNOFILE= of a systemd"
            " unit, or --ulimit of a container"
        )


def start(
    files: GatewayFiles,
    *,
    fleet_key: str,
    prefix: Sequence[str],
    command: Sequence[str],
    is_end: bool,
) -> subprocess.Popen[bytes]:
    """Start the gateway whose files are in place; returns at once.

    With `--detach` the process returned only forks: it exits 0, and nobody has to reap the
    gateway itself.

    Raises OSError when the program cannot be run.
    """
    argv = [
        *prefix,
        *command,
        "--config",
        str(files.config_path),
        "--fleet",
        fleet_key,
        "--detach",
    ]
    with files.log_path.open("ab") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=True,
            start_new_session=True,
            cwd="/",
            env=gateway_environment(os.environ, files.directory, is_end=is_end),
        )
