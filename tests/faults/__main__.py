"""Installs the programs that tests and benches run beside Python, once for each user.

    python -m tests.faults

It names each program that it cannot install, with the reason; the tests of such a program are
skipped. `make test` runs this first, so that no test waits for a compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench.wan import network
from tests.faults import azurite, fake_gcs, toxiproxy, versitygw
from tests.faults.go_programs import Unavailable
from tests.faults.tools import HCLFMT, RCLONE

_INSTALL: Final[dict[str, Callable[[], object]]] = {
    "versitygw": lambda: versitygw.binary(build_s=None),
    "fake-gcs-server": lambda: fake_gcs.binary(build_s=None),
    "azurite": lambda: azurite.program(install_s=None),
    "hclfmt": lambda: HCLFMT.binary(build_s=None),
    "rclone": lambda: RCLONE.binary(build_s=None),
    "toxiproxy": lambda: toxiproxy.PROGRAM.binary(build_s=None),
    "wan-switch": lambda: network.binary(build_s=None),
}


def main() -> None:
    print("programs for tests: some are built once, which takes minutes", flush=True)
    for name, install in _INSTALL.items():
        try:
            install()
        except Unavailable as error:
            print(f"{name} is missing: {error}", flush=True)


if __name__ == "__main__":
    main()
