"""Gets the software of an instance: from an address, or a caller that sends exactly these bytes.

It is part of the boot script, so it imports the standard library only. `software.py` has the
exchange.
"""

import hashlib
import signal
import socket
import sys
import urllib.request
from pathlib import Path
from typing import IO

#: Of an archive at an address.
MOST_BYTES = 2 << 30
#: Of one caller, who must not keep the others waiting: until it says what it has, and of the whole.
GREETING_TIMEOUT_S = 10
CALL_TIMEOUT_S = 300
READ_BYTES = 1 << 16


def say(what: str) -> None:
    sys.stdout.write(f"skyplane: {what}\n")
    sys.stdout.flush()


def is_right(source: IO[bytes], path: Path, sha256: str, limit: int) -> bool:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while limit and (part := source.read(min(limit, READ_BYTES))):
            file.write(part)
            digest.update(part)
            limit -= len(part)
    return digest.hexdigest() == sha256


def has_sent(stream: socket.socket, path: Path, sha256: str, size: int) -> bool:
    source = stream.makefile("rb")
    if source.readline(128) != f"skyplane {sha256}\n".encode():
        say("a caller has other software, or is none of ours")
        return False
    signal.alarm(CALL_TIMEOUT_S)
    stream.sendall(b"send\n")
    if not is_right(source, path, sha256, size):
        say("the software came broken")
        return False
    stream.sendall(b"taken\n")
    return True


def end_call(*_: object) -> None:
    raise TimeoutError("it took too long")


def receive(path: Path, sha256: str, address: str, port: int, size: int) -> None:
    signal.signal(signal.SIGALRM, end_call)
    with socket.create_server((address, port)) as server:
        is_here = False
        while not is_here:
            stream, _ = server.accept()
            signal.alarm(GREETING_TIMEOUT_S)
            try:
                with stream:
                    is_here = has_sent(stream, path, sha256, size)
            except OSError as error:
                say(f"a connection failed: {error}")
            signal.alarm(0)


def main(path: str, sha256: str, url: str, address: str, port: str, size: str) -> int:
    if url:
        with urllib.request.urlopen(url, timeout=60) as source:
            if is_right(source, Path(path), sha256, MOST_BYTES):
                return 0
        say(f"what is at the address has not the SHA-256 {sha256}, or more than 2 GiB")
        return 1
    receive(Path(path), sha256, address, int(port), int(size))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
