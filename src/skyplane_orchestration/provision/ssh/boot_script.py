"""The boot script of an instance on a host: brings what the gateways need, and runs them.

It needs no root. It ends with the gateways, and leaves its log and its tags. The host fills in
`@DIRECTORY@`, the instance's, `@ROOT@`, the one for all fleets, and `@PORT@`.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Final

from skyplane_orchestration.provision.container import CONTAINER_OPTIONS, MOST_OPEN_FILES
from skyplane_orchestration.provision.fleet.software import gateway_requirements
from skyplane_orchestration.provision.fleet.user_data import SETUP_MINUTES
from skyplane_orchestration.provision.local.machine import PASSED_PREFIXES, PROXIES, passed_names
from skyplane_orchestration.provision.ssh.options import SshHost
from skyplane_orchestration.units import SECONDS_PER_MINUTE

#: Modules that a gateway imports at its start; those of stores come later.
_REQUIRED_MODULES: Final = ("aiohttp", "awscrt", "cryptography", "httptools")


def boot_script(
    host: SshHost,
    document: str = "",
    labels: Mapping[str, str] | None = None,
    *,
    is_end: bool = True,
) -> str:
    """The script of one launch.

    Args:
        document: of the enrolment; goes to the supervisor's standard input. Empty for a trial,
            which starts no gateway.
        labels: of containers, name -> value.
        is_end: its gateways talk to object stores, and get the account's proxies.
    """
    digest = hashlib.sha256(gateway_requirements().encode()).hexdigest()[:16]
    values = {
        "PYTHON": shlex.quote(host.interpreter),
        "IMAGE": shlex.quote(host.image),
        "MODULES": shlex.join(_REQUIRED_MODULES),
        "ENVIRONMENT": digest,
        "SETUP": str(int(SETUP_MINUTES * SECONDS_PER_MINUTE)),
        "ADDRESS": shlex.quote(host.address),
        "DOCUMENT": shlex.quote(document),
        "RUN": shlex.join(CONTAINER_OPTIONS),
        "FILES": str(MOST_OPEN_FILES),
        "LABELS": shlex.join(
            word
            for name, value in (labels or {}).items()
            for word in ("--label", f"{name}={value}")
        ),
        "PASSED": "|".join(
            [*sorted(passed_names(is_end=is_end)), *(f"{begin}*" for begin in PASSED_PREFIXES)]
        ),
        # A name without a value: the value comes from the account's environment.
        "PROXIES": " ".join(f"--env {name}" for name in sorted(PROXIES)) if is_end else "",
    }
    if host.image:
        body = _CONTAINER + (_START_CONTAINER if document else _TRY_CONTAINER)
    else:
        body = _OWN_PYTHON if host.python else _ENVIRONMENT
        body += _START if document else ""
    return re.sub("@([A-Z]+)@", lambda found: values.get(found[1], found[0]), _HEAD + body)


_HEAD: Final = r"""#!/bin/sh
# Boots an instance of a skyplane fleet on a host. The token in it works once.
set -eu
umask 077
directory='@DIRECTORY@'
say() { printf 'skyplane: %s\n' "$*"; }
"""

_OWN_PYTHON: Final = r"""
python=@PYTHON@
"$python" -c 'import importlib.util, sys
lacks = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
sys.exit("lacks " + ", ".join(lacks) if lacks else None)' @MODULES@ || {
    say "$python lacks requirements of the gateway; install them there, or omit python, so that" \
        "they are brought"
    exit 1
}
"""

#: Made once for all fleets, and used by processes that start later.
_ENVIRONMENT: Final = r"""
root='@ROOT@'
version=$(@PYTHON@ -c 'import sys; print("%d.%d" % sys.version_info[:2])')
environment=$root-python/@ENVIRONMENT@-$version
python=$environment/bin/python
mkdir -p "${environment%/*}"
(
    # Another instance may make the same one.
    flock 9
    if [ ! -e "$environment/complete" ]; then
        say "making the environment $environment"
        @PYTHON@ -m venv --clear --without-pip "$environment"
        # Wheels only: nothing of a package runs at its installation, and no compiler is needed.
        @PYTHON@ -m zipfile -e "$directory/gateway.zip" "$directory/gateway"
        timeout @SETUP@ env PYTHONPATH="$directory/gateway" \
            "$python" -m pip install --quiet --no-cache-dir --no-input --no-deps \
            --disable-pip-version-check --only-binary :all: --require-hashes \
            --requirement "$directory/gateway/skyplane_gateway/requirements.lock" || {
            say "let the host reach a package index, or name a python that has the gateway's" \
                "requirements"
            exit 1
        }
        : > "$environment/complete"
    fi
) 9> "$environment.lock"
"""

_START: Final = r"""
say "starting the gateways"
own=${PYTHONPATH:-}
# A gateway gets its credentials over the control API alone.
for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
    case $name in @PASSED@) ;; *) unset "$name" ;; esac
done
# `printf` is part of the shell, so the document is in no argument of a process.
printf '%s\n' @DOCUMENT@ |
    env PYTHONPATH="$directory/gateway.zip${own:+:$own}" PYTHONUNBUFFERED=1 \
        "$python" -m skyplane_gateway enrol --address @ADDRESS@ --port @PORT@ \
        --directory "$directory"
"""

_CONTAINER: Final = r"""
image=@IMAGE@
uid=$(id -u)
user=$uid:$(id -g)
if [ "$uid" = 0 ]; then
    user=10001:10001
    chown 10001:10001 "$directory"
fi
mount=type=bind,source=$directory,destination=$directory
if command -v podman >/dev/null && podman info >/dev/null 2>&1; then
    engine=podman
    # SELinux lets a container use files with its own label only.
    mount=$mount,relabel=private
    if [ "$uid" = 0 ]; then set -- --http-proxy=false; else
        set -- --http-proxy=false --userns keep-id
        # The account's own systemd ends at its last logout, with all that it runs.
        if [ "$(podman info --format '{{.Host.CgroupManager}}')" = systemd ] &&
            [ -d /run/systemd/system ] && [ ! -e "/var/lib/systemd/linger/$(id -un)" ]
        then
            say "its containers end when the orchestrator logs out; run \`loginctl enable-linger" \
                "$(id -un)\` there as root"
            exit 1
        fi
    fi
elif command -v docker >/dev/null && docker info >/dev/null; then
    engine=docker
    set -- --userns host
    # Its root is the account, and has no capabilities.
    if docker info --format '{{.SecurityOptions}}' | grep -q name=rootless; then
        user=0:0
        set --
    fi
else
    say 'neither podman nor docker works here; install podman, or omit image'
    exit 1
fi
if ! "$engine" image inspect "$image" >/dev/null 2>&1; then
    timeout @SETUP@ "$engine" pull --quiet "$image" || {
        say "let the host reach the registry of $image, log its account in ($engine login), or" \
            "correct image"
        exit 1
    }
    "$engine" tag "$image" "localhost/skyplane-brought:${image##*:}"
fi
files=$(ulimit -n)
if [ "$files" = unlimited ] || [ "$files" -gt @FILES@ ]; then files=@FILES@; fi
set -- --pull never @RUN@ --user "$user" --ulimit "nofile=$files:$files" --no-healthcheck "$@"
"""

_START_CONTAINER: Final = r"""
printf '%s\n' @DOCUMENT@ |
    "$engine" run --interactive "$@" @LABELS@ --label "skyplane:directory=$directory" \
        --mount "$mount" --env "HOME=$directory" @PROXIES@ \
        "$image" enrol --address @ADDRESS@ --port @PORT@ --directory "$directory"
"""

_TRY_CONTAINER: Final = r"""
"$engine" run "$@" "$image" --help
"""
