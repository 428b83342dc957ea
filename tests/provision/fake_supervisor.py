"""Stands in for `skyplane_gateway enrol --directory`: one process is all gateways of an instance.

Its enrolment is one line of JSON in the clear, node -> configuration, and an empty line as the
answer. Options in front of the real ones make single nodes misbehave: `--crash NODE`,
`--lonely NODE`, `--stubborn NODE`.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import sys
import threading

from fake_gateway import serve  # type: ignore[import-not-found]


def main() -> None:
    parser = argparse.ArgumentParser()
    for fault in ("crash", "lonely", "stubborn"):
        parser.add_argument(f"--{fault}", action="append", default=[])
    parser.add_argument("command", choices=["enrol"])
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--directory", required=True)
    options = parser.parse_args()
    assert "token_hex" in json.loads(sys.stdin.readline())
    with socket.create_server((options.address, options.port)) as listener:
        stream, _ = listener.accept()
    configs = json.loads(stream.makefile().readline())
    for node, config in configs.items():
        if node in options.crash:
            sys.exit(f"{node}: cannot bind {config['data_host']}")
        if node in options.stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        control = socket.create_server((options.address, config["control_port"]))
        given = {"is_lonely": node in options.lonely}
        threading.Thread(target=serve, args=(control, node), kwargs=given, daemon=True).start()
    stream.sendall(b"\n")
    stream.close()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
