"""Stands in for a gateway: the same command line, ready file and signals, no bytes moved.

Answers one JSON request per connection, in the clear. Options in front of the real ones
make single nodes misbehave: `--crash NODE --refuse NODE --mute NODE --lonely NODE
--stubborn NODE`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main() -> None:
    # Tests start hundreds, and `argparse` would take a third of their time.
    given: dict[str, list[str]] = {}
    for option, value in zip(sys.argv[1:], [*sys.argv[2:], ""], strict=True):
        given.setdefault(option, []).append(value)

    def has(fault: str) -> bool:
        return node in given.get(fault, [])

    (path,), (_,) = given["--config"], given["--fleet"]
    with open(path) as file:
        config = json.load(file)
    node = config["node"]
    if has("--refuse"):
        sys.exit(f"{node}: configuration refused")
    if "--detach" in given:
        if os.fork():
            os._exit(0)
        os.setsid()
    if has("--crash"):
        sys.exit(f"{node}: cannot bind {config['data_host']}")
    if has("--stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    listener = socket.create_server((config["control_host"], config["control_port"]))
    if not has("--mute"):
        port = listener.getsockname()[1]
        ready = {"control_port": port, "data_port": port, "pid": os.getpid()}
        draft = f"{config['directory']}/ready.draft"
        with open(draft, "w") as file:
            json.dump(ready, file)
        os.rename(draft, f"{config['directory']}/ready.json")
    print(f"{node}: up", file=sys.stderr, flush=True)
    serve(listener, node, is_lonely=has("--lonely"))


def serve(listener: socket.socket, node: str, *, is_lonely: bool) -> None:
    topologies: list[object] = []
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
