"""The boot script of an instance: the same POSIX shell script for every cloud.

It powers the machine off when the gateways have ended, when anything fails, when the gateways have
not started in time, at the hard end, and at a reboot.
"""

from __future__ import annotations

import logging
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal
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
from skyplane_orchestration.provision.fleet.forwarding import forwarding_script
from skyplane_orchestration.provision.fleet.machines import ENROLMENT_PORT
from skyplane_orchestration.provision.fleet.registries import Registry
from skyplane_orchestration.provision.fleet.software import (
    WHEELS,
    Software,
    own_software,
    software_in,
)
from skyplane_orchestration.units import SECONDS_PER_MINUTE

log = logging.getLogger(__name__)

#: EC2's limit, the smallest of the clouds.
MOST_USER_DATA_BYTES: Final = 16 << 10

#: Longest time from the boot until the supervisor listens, which ends by itself when nobody enrols
#: it. A pull, an install or a start that hangs would otherwise keep the machine to its hard end.
SETUP_MINUTES: Final = 15


@dataclass(frozen=True, slots=True)
class BootSettings:
    """What an instance runs, and how it gets there.

    Args:
        software: `push`: the orchestrator sends the gateway's package, and instances install its
            pinned requirements from their package index. `bundle`: a file has the requirements
            too. `image`: a container. Empty for the one that the other settings name, or `push`.
        image: `registry.example/skyplane-gateway@sha256:...`, which instances must be able to pull;
            or the HTTPS address of what `docker save` or `podman save` has written.
        image_sha256: of the archive at that address, 64 hex characters.
        bundle: file that `skyplane-orch bundle` has written, which the orchestrator sends; or its
            HTTPS address, from which instances read it.
        bundle_sha256: of the file at that address, 64 hex characters.
        wheel_url, wheel_sha256: of earlier versions; `push` has taken their place.

    Raises ConfigurationInvalid for anything else.
    """

    software: Literal["", "push", "bundle", "image"] = ""
    image: str = ""
    image_sha256: str = ""
    bundle: str = ""
    bundle_sha256: str = ""
    wheel_url: str = ""
    wheel_sha256: str = ""

    def __post_init__(self) -> None:
        check(self)
        named = [kind for kind in ("image", "bundle") if getattr(self, kind)]
        if len(named) > 1:
            raise ConfigurationInvalid("instances run an image or a bundle; name one of them")
        kind = named[0] if named else "push"
        if self.software not in ("", kind):
            lack = f"has no {kind}" if self.software == "push" else f"needs {self.software}"
            raise ConfigurationInvalid(f"software is {self.software!r}, which {lack}")
        object.__setattr__(self, "software", kind)
        if self.wheel_url or self.wheel_sha256:
            log.warning(
                "wheel_url and wheel_sha256 are not used any more: the orchestrator sends the"
                " gateway's package itself; remove them, or name a bundle where instances reach no"
                " package index"
            )
        for kind in ("image", "bundle"):
            self._check_address(kind, getattr(self, kind), getattr(self, f"{kind}_sha256"))
        if self.image and not self.address:
            require_pinned(self.image)

    @property
    def address(self) -> str:
        """From where instances read the image or the bundle themselves; empty for none."""
        one = self.image or self.bundle
        return one if "://" in one else ""

    @staticmethod
    def _check_address(kind: str, text: str, sha256: str) -> None:
        """Without the address in errors, since it may be signed."""
        if "://" not in text:
            if sha256:
                raise ConfigurationInvalid(
                    f"{kind}_sha256 is of no use without the address of {kind}"
                )
            return
        try:
            address = urlsplit(text)
        except ValueError as error:
            raise ConfigurationInvalid(f"the address of {kind}: {error}") from error
        # What Python's HTTP client takes as an address.
        is_plain = re.fullmatch(r"[!-~]+", text)
        if address.scheme != "https" or not address.hostname or not is_plain:
            raise ConfigurationInvalid(
                f"the address of {kind} is no HTTPS address, or has blanks or other characters that"
                " must be encoded, such as %20"
            )
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise ConfigurationInvalid(
                f"{kind}_sha256 {sha256!r} is not a SHA-256 of 64 lower-case hex characters;"
                " `sha256sum FILE` prints it"
            )

    def require_bundle(self) -> None:
        """Raise ConfigurationInvalid for a file that is no bundle of this version."""
        if self.bundle and not self.address:
            software_in(self.bundle)

    def pushed(self) -> Software | None:
        """What the orchestrator sends; None if instances get it elsewhere.

        Raises ConfigurationInvalid: the bundle cannot be read; MissingExtra: there is no pip.
        """
        if self.software == "image" or self.address:
            return None
        return software_in(self.bundle) if self.bundle else own_software()


def user_data(
    settings: BootSettings,
    document: EnrolmentDocument,
    hard_end_s: float,
    processes: int = 1,
    worker_port: int = ENROLMENT_PORT,
    registry: Registry | None = None,
) -> str:
    """The boot script.

    Args:
        document: goes to the gateway's standard input, so it is on no disk besides this script.
        hard_end_s: the instance powers off this long after its boot, whatever happens.
        processes: gateways of the instance.
        worker_port: the fleet's `control_port`.
        registry: where it logs in by its identity, before it pulls the image.

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
        "RUN": shlex.join(CONTAINER_OPTIONS),
        "USER": f"{CONTAINER_USER}:{CONTAINER_USER}",
        "FILES": f"{MOST_OPEN_FILES}:{MOST_OPEN_FILES}",
        "DOCUMENT": shlex.quote(document.to_json()),
    }
    parts = [_filled(_HEAD, values), forwarding_script(worker_port, processes)]
    if settings.software != "image":
        parts += [software_script(settings), _filled(_START, values)]
    else:
        load = (_PYTHON, _received(settings), _LOAD)
        pull = (*_login(registry), _filled(_PULL, values))
        parts += [_ENGINE, *(load if settings.address else pull), _filled(_RUN, values)]
    script = "".join(parts)
    size = len(script.encode())
    if size > MOST_USER_DATA_BYTES:
        raise ConfigurationInvalid(
            f"the boot script has {size} bytes, and clouds take {MOST_USER_DATA_BYTES}; use a"
            " shorter name or address of the image or bundle"
        )
    return script


def software_script(settings: BootSettings) -> str:
    """The part of a script that gets the software; it needs `$address` and `retry`.

    `$python` and `PYTHONPATH` are set at its end.
    """
    return _FIND_PYTHON + _received(settings) + _filled(_INSTALL, {"WHEELS": WHEELS})


def _received(settings: BootSettings) -> str:
    """`$directory/received` is the archive that `$python` has got, and no other."""
    pushed = settings.pushed()
    values = {
        "PORT": str(ENROLMENT_PORT),
        "URL": shlex.quote(settings.address),
        "SHA256": pushed.sha256 if pushed else settings.image_sha256 or settings.bundle_sha256,
        "BYTES": str(pushed.size_bytes if pushed else 0),
        "RECEIVE": files(__package__).joinpath("receive.py").read_text(encoding="utf-8"),
    }
    return _filled(_RECEIVE, values)


def _login(registry: Registry | None) -> tuple[str, ...]:
    if registry is None:
        return ()
    values = {
        "CLOUD": registry.cloud,
        "HOST": registry.host,
        "USER": registry.user,
        "PROGRAM": files(__package__).joinpath("registry_login.py").read_text(encoding="utf-8"),
    }
    return _PYTHON, _filled(_LOGIN, values)


def _filled(template: str, values: Mapping[str, str]) -> str:
    """In one pass, since a value may look like a name."""
    return re.sub("@([A-Z0-9]+)@", lambda found: values[found[1]], template)


def with_last_act(script: str, act: str) -> str:
    """The boot script, which also does this before it powers the machine off.

    Args:
        act: the body of a function of the shell; may return early, and may fail.
    """
    return script.replace(_NO_LAST_ACT, f"last_act() {{{act}}}\n", 1)


def hiding_identity(script: str) -> str:
    """The boot script, which also lets gateways get no token of the machine's identity."""
    return script.replace(_NOT_HIDDEN, _HIDDEN, 1)


_NOT_HIDDEN: Final = "# Gateways may use the identity of this machine, if it has one.\n"
#: Of the metadata service, the gateways' user has name resolution left, which is there on Google
#: Cloud. Containers share the network of the machine, and cannot change users or rules.
_HIDDEN: Final = f"""# The identity of this machine is for the registry alone.
ip rule add pref 1 uidrange {CONTAINER_USER}-{CONTAINER_USER} to 169.254.169.254 \\
    ipproto tcp dport 54-65534 prohibit
"""

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

# Package indexes and registries fail now and then, and right after the boot there may be no
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

uptime_s() { cut -d. -f1 /proc/uptime; }

# Whatever hangs before the gateways listen, the machine powers off. The hard end takes its place.
booted_s=$(uptime_s)
shutdown -P +@SETUP@
# A reboot is the end too: gateways hold their keys in memory only.
systemctl set-default poweroff.target
# Nobody logs in: neither with a key that an agent of the cloud adds, nor through such an agent.
for unit in ssh.socket ssh.service sshd.service amazon-ssm-agent.service; do
    { systemctl mask --runtime "$unit"; systemctl stop "$unit"; } >/dev/null 2>&1 || true
done

# Long lines carry more with BBR. It is a module, and gateways may use what this list has.
allowed=/proc/sys/net/ipv4/tcp_allowed_congestion_control
if modprobe -q tcp_bbr 2>/dev/null; then echo "$(cat "$allowed") bbr" > "$allowed" || true; fi

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
# Gateways may use the identity of this machine, if it has one.
"""

_ENGINE: Final = r"""
install_packages() {
    if command -v dnf >/dev/null; then
        retry dnf install -y -q "$@"
    else
        retry apt-get update -q
        retry env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
            install -y -q --no-install-recommends "$@"
    fi
}

if command -v docker >/dev/null; then
    engine=docker
elif command -v podman >/dev/null; then
    engine=podman
elif command -v apt-get >/dev/null || dnf -q list docker >/dev/null 2>&1; then
    engine=docker
    if command -v dnf >/dev/null; then install_packages docker; else install_packages docker.io; fi
    # Debian 13 has the command in a package of its own.
    command -v docker >/dev/null || install_packages docker-cli
else
    engine=podman
    install_packages podman
fi
if [ "$engine" = docker ]; then retry systemctl start docker; fi
"""

_PULL: Final = r"""
image=@IMAGE@
retry "$engine" pull --quiet "$image"
"""

#: Debian's engines write the password to a file of root's, which ends with the machine.
_LOGIN: Final = r"""
# The password is in no argument of a process, and not on the console.
log_in() {
    password=$("$python" - @CLOUD@ @HOST@ <<'PYTHON'
@PROGRAM@PYTHON
    ) && printf '%s' "$password" |
        "$engine" login --username @USER@ --password-stdin @HOST@ >/dev/null
}
retry log_in
password=
"""

_PYTHON: Final = r"""
python=python3
command -v "$python" >/dev/null || install_packages python3
"""

#: An archive may have an image for each kind of processor. Only what it has is named here, so its
#: checksum covers that too.
_LOAD: Final = r"""
case $(uname -m) in aarch64) processor=arm64 ;; *) processor=amd64 ;; esac
image=
# Each line ends with the name or the id of an image.
for one in $("$engine" load --quiet --input "$directory/received" | grep -o '[^ ]*$'); do
    if [ "$("$engine" image inspect --format '{{.Architecture}}' "$one")" = "$processor" ]; then
        image=$one
    fi
done
[ -n "$image" ] || { say "the archive has no image for $processor"; exit 1; }
rm "$directory/received"
"""

_RUN: Final = r"""
say "starting the gateways on $address"
await_gateways &
# The file system is read-only; keys are in memory only. `printf` is part of the shell, so the
# document is in no argument of a process.
printf '%s\n' @DOCUMENT@ |
    "$engine" run --interactive @RUN@ --user @USER@ --ulimit nofile=@FILES@ \
        "$image" enrol --address "$address"
"""

_FIND_PYTHON: Final = r"""
find_python() {
    for python in python3 python3.13 python3.12 python3.11; do
        if command -v "$python" >/dev/null && "$python" -c \
            'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
        then
            return 0
        fi
    done
    return 1
}
find_python || { say 'the image of this machine has no Python 3.11, 3.12 or 3.13'; exit 1; }
"""

_RECEIVE: Final = r"""
# Another user runs the gateways and reads these files.
directory=$(TMPDIR=${TMPDIR:-/var/tmp} mktemp -d)
chmod 755 "$directory"
cat > "$directory/receive.py" <<'PYTHON'
@RECEIVE@PYTHON
say "waiting for the software on $address"
retry "$python" "$directory/receive.py" "$directory/received" @SHA256@ @URL@ \
    "$address" @PORT@ @BYTES@
"""

_INSTALL: Final = r"""say 'installing the software'
umask 022
"$python" -m zipfile -e "$directory/received" "$directory/software"
"$python" -m venv --without-pip "$directory/venv"
python=$directory/venv/bin/python
export PYTHONPATH="$directory/software"
# The archive has the pins of its requirements, so its checksum covers them. They have hashes, so
# a package index cannot give another file. Wheels only: no code of a package runs now.
set -- --only-binary :all: --require-hashes \
    --requirement "$directory/software/skyplane_gateway/requirements.lock"
if [ -d "$directory/software/@WHEELS@" ]; then
    set -- --no-index --find-links "$directory/software/@WHEELS@" "$@"
fi
retry "$python" -m pip install --quiet --no-cache-dir --no-input --no-deps \
    --disable-pip-version-check "$@"
# The gateways' user cannot write here, and each of them would compile all anew.
"$python" -m compileall -q "$directory/software/skyplane_gateway"

"""

_START: Final = r"""say "starting the gateways on $address"
await_gateways &
# Keys are in memory only. `printf` is part of the shell, so the document is in no argument of a
# process.
printf '%s\n' @DOCUMENT@ |
    setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --inh-caps=-all \
        env -i PATH=/usr/bin:/bin TMPDIR="${TMPDIR:-/dev/shm}" PYTHONUNBUFFERED=1 \
        PYTHONPATH="$PYTHONPATH" "$python" -m skyplane_gateway enrol --address "$address"
"""
