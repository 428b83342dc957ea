"""Stands in for a gateway: the same command line, ready file and signals, no bytes moved.

Answers one JSON request per connection, in the clear. Options in front of the real ones
make single nodes misbehave: `--crash NODE --refuse NODE --mute NODE --lonely NODE
--stubborn NODE`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    for fault in ("crash", "refuse", "mute", "lonely", "stubborn"):
        parser.add_argument(f"--{fault}", action="append", default=[])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--fleet", required=True)
    parser.add_argument("--detach", action="store_true")
    options = parser.parse_args()
    config = json.loads(options.config.read_text())
    node = config["node"]
    if node in options.refuse:
        sys.exit(f"{node}: configuration refused")
    if options.detach:
        if os.fork():
            os._exit(0)
        os.setsid()
    if node in options.crash:
        sys.exit(f"{node}: cannot bind {config['data_host']}")
    if node in options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    listener = socket.create_server((config["control_host"], config["control_port"]))
    if node not in options.mute:
        port = listener.getsockname()[1]
        ready = {"control_port": port, "data_port": port, "pid": os.getpid()}
        draft = Path(config["directory"], "ready.draft")
        draft.write_text(json.dumps(ready))
        draft.rename(Path(config["directory"], "ready.json"))
    print(f"{node}: up", file=sys.stderr, flush=True)
    serve(listener, node, is_lonely=node in options.lonely)


def serve(listener: socket.socket, node: str, *, is_lonely: bool) -> None:
    topologies: list[Any] = []
    renewals: list[float] = []
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            request = json.loads(stream.readline() or "{}")
            topologies += request.get("topology", [])
            renewals += request.get("renew", [])
            answer = {
                "node": node,
                "connected": bool(topologies) and not is_lonely,
                "topologies": topologies,
                "renewals": renewals,
            }
            stream.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
