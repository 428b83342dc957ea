"""Disks of Debian as clouds offer it, made once and kept in the user's cache.

The packages are those of Debian's own images for clouds, as the package lists of
debian-cloud-images have them (July 2024, bookworm and trixie): `SYSTEM_BOOT`, `CLOUD` and `EC2`,
and of `EXTRAS` what a boot script could use. Left out are what no boot script runs (editors,
manuals, `awscli`), the boot loader, since QEMU loads the kernel, and drivers of one cloud. Images
of Google Cloud have the same but cloud-init: its guest agent runs the script.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.apt_tools import require_tools
from tests.e2e.container_tool import SEARCH_PATH
from tests.faults import go_programs

#: System -> Debian's name of the release.
SYSTEMS: Final = {"debian-12": "bookworm", "debian-13": "trixie"}

_TOOLS: Final = {
    "mmdebstrap": "mmdebstrap",
    "mkfs.ext4": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
}
_PACKAGES: Final = (
    *("init", "libpam-systemd", "systemd-resolved", "netplan.io", "libnss-myhostname", "polkitd"),
    *("systemd-timesyncd", "unattended-upgrades", "apt-utils", "netbase", "iptables", "sudo"),
    *("linux-image-cloud-amd64", "initramfs-tools", "apparmor", "zstd", "cloud-initramfs-growroot"),
    *("openssh-server", "cloud-init", "cloud-guest-utils"),
    *("ca-certificates", "curl", "xz-utils"),
)
#: Found before a test has a home of its own.
_CACHE: Final = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    / "skyplane-orchestration"
    / "machines"
)
_LABEL: Final = "root"
#: After the installation. What differs between machines is made at their first boot.
_FINISH: Final = f"""
set -eu
systemctl enable systemd-networkd systemd-resolved
rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* /etc/hostname
: > /etc/machine-id
ln -sf /run/systemd/resolve/resolv.conf /etc/resolv.conf
echo 'LABEL={_LABEL} / ext4 rw,discard,errors=remount-ro 0 1' > /etc/fstab
"""
_DISK: Final = "8G"
#: An emulated processor takes minutes to compile profiles of a hundred programs that are not there,
#: and tests of ciphers; it need not be protected from its guesses; where it starves, the kernel
#: misjudges its clock, and units are not up in systemd's usual time.
_SHORTER_BOOT: Final = (
    "systemd.mask=apparmor.service cryptomgr.notests mitigations=off tsc=unstable"
    " systemd.default_timeout_start_sec=600"
)


@dataclass(frozen=True, slots=True)
class Root:
    """A system that boots: `disk` is raw, and is not to be written to."""

    system: str
    disk: Path
    kernel: Path
    initrd: Path

    @property
    def kernel_options(self) -> str:
        return f"root=LABEL={_LABEL} ro console=ttyS0 panic=5 {_SHORTER_BOOT}"


def root_or_skip(system: str) -> Root:
    """The disk of a system. Skips the test, with the reason, where none can be made."""
    require_tools(_TOOLS)
    made_of = hashlib.sha256(repr((_PACKAGES, _FINISH, _DISK)).encode()).hexdigest()[:12]
    folder = _CACHE / f"{system}-{made_of}"
    folder.mkdir(parents=True, exist_ok=True)
    root = Root(system, folder / "disk", folder / "kernel", folder / "initrd")
    try:
        go_programs.make_once(root.disk, system, lambda: _make(root), within_s=600)
    except go_programs.Unavailable as error:
        pytest.skip(str(error))
    return root


def _make(root: Root) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{root.system}-") as scratch:
        tree = Path(scratch, "tree")
        _run(
            "mmdebstrap",
            "--quiet",
            "--mode=root",
            "--variant=minbase",
            f"--include={','.join(_PACKAGES)}",
            f'--customize-hook=chroot "$1" sh -c "{_FINISH}"',
            SYSTEMS[root.system],
            str(tree),
        )
        for name, path in (("vmlinuz", root.kernel), ("initrd.img", root.initrd)):
            (found,) = (tree / "boot").glob(f"{name}-*")
            shutil.copyfile(found, path)
        disk = Path(scratch, "disk")
        _run("mkfs.ext4", "-q", "-L", _LABEL, "-d", str(tree), str(disk), _DISK)
        # Holes stay holes.
        _run("cp", "--sparse=always", str(disk), f"{root.disk}.new")
        Path(f"{root.disk}.new").rename(root.disk)


def _run(*command: str) -> None:
    environment = {**os.environ, "PATH": SEARCH_PATH}
    subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
