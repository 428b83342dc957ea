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

python=python3
command -v "$python" >/dev/null || install_packages python3

# Another user runs the gateways and reads these files.
directory=$(TMPDIR=${TMPDIR:-/var/tmp} mktemp -d)
chmod 755 "$directory"
cat > "$directory/receive.py" <<'PYTHON'
PYTHON
say "waiting for the software on $address"
retry "$python" "$directory/receive.py" "$directory/received" cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd 'https://files.example/gw.tar?@RUN@&b='"'"'2'"'"'' \
    "$address" 7600 0

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

say "starting the gateways on $address"
await_gateways &
# The file system is read-only; keys are in memory only. `printf` is part of the shell, so the
# document is in no argument of a process.
printf '%s\n' '{"schema_version": 1, "fleet_key": "abababababababababababababababab", "instance": "aws:us-east-1/0", "port": 7600, "start_within_s": 900.0, "authority_pem": "-----BEGIN CERTIFICATE-----\nMIIB+/==\nMIIB+/==\nMIIB+/==\nMIIB+/==\nMIIB+/==\nMIIB+/==\nMIIB+/==\nMIIB+/==\n-----END CERTIFICATE-----\n", "token_hex": "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e"}' |
    "$engine" run --interactive --rm --network host --read-only --tmpfs /tmp:rw,nosuid,nodev,noexec,mode=1777 --cap-drop ALL --security-opt no-new-privileges --log-driver none --stop-timeout 40 --user 10001:10001 --ulimit nofile=65536:65536 \
        "$image" enrol --address "$address"
