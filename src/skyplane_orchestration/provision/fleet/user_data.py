"""The boot script of an instance: the same POSIX shell script for every cloud.

It powers the machine off when the gateways have ended, when anything fails, when the gateways have
not started in time, at the hard end, and at a reboot.
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from skyplane_gateway.common.schema import check
from skyplane_gateway.enrolment.documents import EnrolmentDocument
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.container import (
    CONTAINER_OPTIONS,
    CONTAINER_USER,
    MOST_OPEN_FILES,
    require_pinned,
)
from skyplane_orchestration.units import SECONDS_PER_MINUTE

#: EC2's limit, the smallest of the clouds.
MOST_USER_DATA_BYTES: Final = 16 << 10

#: Longest time from the boot until the supervisor listens, which ends by itself when nobody enrols
#: it. A pull, an install or a start that hangs would otherwise keep the machine to its hard end.
SETUP_MINUTES: Final = 15

#: The gateway's pins within a wheel of this project.
_PINS: Final = "skyplane_gateway/requirements.lock"

_WHEEL_NAME: Final = re.compile(r"skyplane_orchestration-[A-Za-z0-9_.!+-]+\.whl")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class BootSettings:
    """What an instance runs: an image with a digest, or a wheel with a checksum.

    Args:
        image: `registry.example/skyplane-gateway@sha256:...`; instances must be able to pull it.
        wheel_url: HTTPS address of the wheel. The gateway's pinned requirements, which are a file
            in the wheel, come from the instance's package index and are checked by their hashes.
        wheel_sha256: of the wheel, 64 hex characters.

    Raises ConfigurationInvalid for anything else.
    """

    image: str = ""
    wheel_url: str = ""
    wheel_sha256: str = ""

    def __post_init__(self) -> None:
        check(self)
        if bool(self.image) == bool(self.wheel_url):
            raise ConfigurationInvalid(
                "instances need either image (`registry/name@sha256:...`), or wheel_url and"
                " wheel_sha256"
            )
        if self.image:
            if self.wheel_sha256:
                raise ConfigurationInvalid("wheel_sha256 is of no use without wheel_url")
            require_pinned(self.image)
            return
        try:
            address = urlsplit(self.wheel_url)
        except ValueError as error:
            raise ConfigurationInvalid(f"wheel_url {self.wheel_url!r}: {error}") from error
        if address.scheme != "https" or not address.hostname or not self.wheel_url.isprintable():
            raise ConfigurationInvalid(f"wheel_url {self.wheel_url!r} is not an HTTPS address")
        if not _WHEEL_NAME.fullmatch(self.wheel_name):
            raise ConfigurationInvalid(
                f"wheel_url {self.wheel_url!r} does not end with the name of a wheel of this"
                " project (`skyplane_orchestration-...-py3-none-any.whl`)"
            )
        if not _SHA256.fullmatch(self.wheel_sha256):
            raise ConfigurationInvalid(
                f"wheel_sha256 {self.wheel_sha256!r} is not a SHA-256 of 64 lower-case hex"
                " characters; `sha256sum FILE` prints it"
            )

    @property
    def wheel_name(self) -> str:
        return urlsplit(self.wheel_url).path.rpartition("/")[2]


def user_data(settings: BootSettings, document: EnrolmentDocument, hard_end_s: float) -> str:
    """The boot script.

    Args:
        document: goes to the gateway's standard input, so it is on no disk besides this script.
        hard_end_s: the instance powers off this long after its boot, whatever happens.

    Raises ConfigurationInvalid for a script beyond 16 KiB, or a hard end that is not positive.
    """
    if not 0 < hard_end_s < math.inf:
        raise ConfigurationInvalid.about(
            "{hard_end_s} must be positive and finite, not {given!r}", given=hard_end_s
        )
    minutes = math.ceil(hard_end_s / SECONDS_PER_MINUTE)
    values = {
        "MINUTES": str(minutes),
        "SETUP": str(min(minutes, SETUP_MINUTES)),
        "PORTS": f"{document.port:04X}|{document.port + 1:04X}",
        "IMAGE": shlex.quote(settings.image),
        "URL": shlex.quote(settings.wheel_url),
        "NAME": shlex.quote(settings.wheel_name),
        "SHA256": settings.wheel_sha256,
        "PINS": _PINS,
        "RUN": shlex.join(CONTAINER_OPTIONS),
        "USER": f"{CONTAINER_USER}:{CONTAINER_USER}",
        "FILES": f"{MOST_OPEN_FILES}:{MOST_OPEN_FILES}",
        "DOCUMENT": shlex.quote(document.to_json()),
    }
    template = _HEAD + (_CONTAINER if settings.image else _WHEEL)
    # In one pass, since a value may look like a name.
    script = re.sub("@([A-Z0-9]+)@", lambda found: values[found[1]], template)
    size = len(script.encode())
    if size > MOST_USER_DATA_BYTES:
        raise ConfigurationInvalid(
            f"the boot script has {size} bytes, and clouds take {MOST_USER_DATA_BYTES}; use a"
            " shorter image or wheel_url"
        )
    return script


def with_last_act(script: str, act: str) -> str:
    """The boot script, which also does this before it powers the machine off.

    Args:
        act: the body of a function of the shell; may return early, and may fail.
    """
    return script.replace(_NO_LAST_ACT, f"last_act() {{{act}}}\n", 1)


#: The line that `with_last_act` replaces.
_NO_LAST_ACT: Final = "last_act() { :; }\n"

_HEAD: Final = r"""#!/bin/sh
# Boots an instance of a skyplane fleet: runs its gateways, then powers the machine off.
# Everybody who may describe the instance may read this. The token in it works once.
set -eu
umask 077

say() { printf 'skyplane: %s\n' "$*"; }

last_act() { :; }

power_off() {
    status=$?
    trap - EXIT
    say "the boot script ended with status $status; powering off"
    last_act || true
    shutdown -P now
}
trap power_off EXIT
trap 'exit 143' HUP INT TERM

# Package mirrors and registries fail now and then, and right after the boot there may be no
# network yet.
retry() {
    attempt=1
    until "$@"; do
        if [ "$attempt" -ge 6 ]; then
            say "failed $attempt times: $1"
            return 1
        fi
        sleep "$((attempt * attempt))"
        attempt=$((attempt + 1))
    done
}

install_packages() {
    if command -v dnf >/dev/null; then
        retry dnf install -y -q "$@"
    else
        retry apt-get update -q
        retry env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
            install -y -q --no-install-recommends "$@"
    fi
}

uptime_s() { cut -d. -f1 /proc/uptime; }

# Whatever hangs before the gateways listen, the machine powers off. The hard end takes its place.
booted_s=$(uptime_s)
shutdown -P +@SETUP@
# A reboot is the end too: gateways hold their keys in memory only.
systemctl set-default poweroff.target

# The new schedule replaces the first one.
schedule_hard_end() {
    shutdown -P +"$((@MINUTES@ - ($(uptime_s) - booted_s) / 60))"
}

# Ports of the enrolment and of the first gateway, which follows it: one of them stays open. The
# kernel writes them in hexadecimal, and the bytes of the address from the last to the first.
await_gateways() {
    listening=$(echo "$address" | {
        IFS=. read -r a b c d
        printf ': %02X%02X%02X%02X:(@PORTS@) 00000000:0000 0A ' "$d" "$c" "$b" "$a"
    })
    until grep -Eq "$listening" /proc/net/tcp; do sleep 1; done
    schedule_hard_end
}

address=$(hostname -I | cut -d' ' -f1)
[ -n "$address" ] || { say 'the machine has no address'; exit 1; }
"""

_CONTAINER: Final = r"""
image=@IMAGE@
if command -v docker >/dev/null; then
    engine=docker
elif command -v podman >/dev/null; then
    engine=podman
elif command -v apt-get >/dev/null || dnf -q list docker >/dev/null 2>&1; then
    engine=docker
    if command -v dnf >/dev/null; then install_packages docker; else install_packages docker.io; fi
else
    engine=podman
    install_packages podman
fi
if [ "$engine" = docker ]; then retry systemctl start docker; fi

retry "$engine" pull --quiet "$image"
say "starting the gateways on $address"
await_gateways &
# The file system is read-only; keys are in memory only. `printf` is part of the shell, so the
# document is in no argument of a process.
printf '%s\n' @DOCUMENT@ |
    "$engine" run --interactive @RUN@ --user @USER@ --ulimit nofile=@FILES@ \
        "$image" enrol --address "$address"
"""

_WHEEL: Final = r"""
find_python() {
    for python in python3.13 python3.12 python3.11 python3; do
        if command -v "$python" >/dev/null && "$python" -c \
            'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
        then
            return 0
        fi
    done
    return 1
}

if ! find_python; then
    if command -v dnf >/dev/null; then
        install_packages python3.11
    else
        install_packages python3 python3-venv
    fi
    find_python || { say 'there is no Python 3.11, 3.12 or 3.13 with venv'; exit 1; }
fi
command -v curl >/dev/null || install_packages ca-certificates curl

# Another user runs the gateways and reads these files.
directory=$(TMPDIR=${TMPDIR:-/var/tmp} mktemp -d)
chmod 755 "$directory"
wheel=$directory/@NAME@
retry curl --fail --silent --show-error --location --proto '=https' --max-time 300 \
    --output "$wheel" @URL@
printf '%s  %s\n' @SHA256@ "$wheel" | sha256sum -c -
umask 022
# The wheel has the pins of its requirements, so the checksum covers them too.
"$python" -m zipfile -e "$wheel" "$directory/wheel"
"$python" -m venv "$directory/venv"
# Wheels only: nothing of a package runs at its installation, and no compiler is needed. The pins
# have hashes, so the package index cannot give another file.
retry "$directory/venv/bin/pip" install --quiet --no-cache-dir --no-input --no-deps \
    --only-binary :all: --require-hashes --requirement "$directory/wheel/@PINS@"
"$directory/venv/bin/pip" install --quiet --no-cache-dir --no-input --no-deps --no-index "$wheel"

say "starting the gateways on $address"
await_gateways &
# Keys are in memory only. `printf` is part of the shell, so the document is in no argument of a
# process.
printf '%s\n' @DOCUMENT@ |
    setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --inh-caps=-all \
        env -i PATH=/usr/bin:/bin TMPDIR="${TMPDIR:-/dev/shm}" PYTHONUNBUFFERED=1 \
        "$directory/venv/bin/skyplane-gateway" enrol --address "$address"
"""
