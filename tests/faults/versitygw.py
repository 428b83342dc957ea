"""versitygw, an S3 server of another make than any we were written against, for tests.

Its own files and processes (Apache 2.0; posix back end): it checks signatures, checksums
and preconditions, so it refuses what moto lets pass. `go_programs` says how it is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults import go_programs
from tests.faults.go_programs import Unavailable
from tests.ports import free_port

__all__ = ["LACKS", "Server", "Unavailable", "binary", "running"]

_PROGRAM: Final = go_programs.Program(
    "versitygw", "github.com/versity/versitygw/cmd/versitygw@v1.8.0", "SKYPLANE_TEST_VERSITYGW"
)
binary = _PROGRAM.binary

#: Where it falls short of S3 (v1.8.0): keys are paths, control characters come back changed
#: in listings, a completion whose upload is gone is answered with whatever is there, it has no
#: storage classes, and If-None-Match refuses a write over a delete marker.
LACKS: Final = frozenset(
    {"posix-keys", "control-characters", "gone-upload", "classes", "if-absent-over-delete-marker"}
)


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    access_key_id: str
    secret_access_key: str
    pid: int


@contextmanager
def running(
    root: Path,
    *options: str,
    region: str = "us-east-1",
    host: str = "127.0.0.1",
    prefix: Sequence[str] = (),
    certificate: Path | None = None,
) -> Iterator[Server]:
    """A server that keeps buckets as directories below `root`, until the block ends.

    Args:
        options: of its posix back end, for example `--data-integrity-etag`.
        region: the one that requests are signed for.
        host: the address that it listens on.
        prefix: words before its command, which enter another network namespace.
        certificate: PEM file with its key and certificate, for HTTPS; None for HTTP.

    Raises:
        Unavailable: there is none, or it does not come up (its file system may lack extended
            attributes).
    """
    port = free_port()
    address = f"{host}:{port}"
    access_key_id, secret_access_key = "versity-key", "versity-secret"
    identity = {
        "ROOT_ACCESS_KEY_ID": access_key_id,
        "ROOT_SECRET_ACCESS_KEY": secret_access_key,
        "VGW_REGION": region,
    }
    command = [*prefix, str(binary()), "--port", address, "--keep-alive", "--quiet"]
    if certificate is not None:
        command += ["--cert", str(certificate), "--key", str(certificate)]
    command += ["posix", *options, str(root)]
    log_file = root.parent / f"{root.name}.log"
    with go_programs.running(command, port, log_file, identity, host=host) as pid:
        scheme = "http" if certificate is None else "https"
        yield Server(f"{scheme}://{address}", access_key_id, secret_access_key, pid)


if __name__ == "__main__":
    print(binary(build_s=None))
