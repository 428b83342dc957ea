#!/bin/sh
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
shutdown -P +15
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
    shutdown -P +"$((1440 - ($(uptime_s) - booted_s) / 60))"
}

# Ports of the enrolment and of the first gateway, which follows it: one of them stays open. The
# kernel writes them in hexadecimal, and the bytes of the address from the last to the first.
await_gateways() {
    listening=$(echo "$address" | {
        IFS=. read -r a b c d
        printf ': %02X%02X%02X%02X:(1DB0|1DB1) 00000000:0000 0A ' "$d" "$c" "$b" "$a"
    })
    until grep -Eq "$listening" /proc/net/tcp; do sleep 1; done
    schedule_hard_end
}

address=$(hostname -I | cut -d' ' -f1)
[ -n "$address" ] || { say 'the machine has no address'; exit 1; }
# Gateways may use the identity of this machine, if it has one.

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

# Another user runs the gateways and reads these files.
directory=$(TMPDIR=${TMPDIR:-/var/tmp} mktemp -d)
chmod 755 "$directory"
cat > "$directory/receive.py" <<'PYTHON'
PYTHON
say "waiting for the software on $address"
retry "$python" "$directory/receive.py" "$directory/received" cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd '' \
    "$address" 7600 2500000
say 'installing the software'
umask 022
"$python" -m zipfile -e "$directory/received" "$directory/software"
"$python" -m venv --without-pip "$directory/venv"
python=$directory/venv/bin/python
export PYTHONPATH="$directory/software"
# The archive has the pins of its requirements, so its checksum covers them. They have hashes, so
# a package index cannot give another file. Wheels only: no code of a package runs now.
set -- --only-binary :all: --require-hashes \
    --requirement "$directory/software/skyplane_gateway/requirements.lock"
if [ -d "$directory/software/wheels" ]; then
    set -- --no-index --find-links "$directory/software/wheels" "$@"
fi
retry "$python" -m pip install --quiet --no-cache-dir --no-input --no-deps \
    --disable-pip-version-check "$@"
# The gateways' user cannot write here, and each of them would compile all anew.
"$python" -m compileall -q "$directory/software/skyplane_gateway"

say "starting the gateways on $address"
await_gateways &
# Keys are in memory only. `printf` is part of the shell, so the document is in no argument of a
# process.
printf '%s\n' '{"schema_version": 1, "fleet_key": "abababababababababababababababab", "instance": "aws:us-east-1/0", "port": 7600, "start_within_s": 900.0, "authority_pem": "-----BEGIN CERTIFICATE-----\nMIIB+/==\nMIIB+/==\nMIIB+/==\nMIIB+/==\nMIIB+/==\nMIIB+/==\nMIIB+/==\nMIIB+/==\n-----END CERTIFICATE-----\n", "token_hex": "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e"}' |
    setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --inh-caps=-all \
        env -i PATH=/usr/bin:/bin TMPDIR="${TMPDIR:-/dev/shm}" PYTHONUNBUFFERED=1 \
        PYTHONPATH="$PYTHONPATH" "$python" -m skyplane_gateway enrol --address "$address"
