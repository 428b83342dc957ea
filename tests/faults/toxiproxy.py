"""toxiproxy: a server's answers pass through it and come late, for benches.

Connections are made without a delay; each answer's bytes arrive so much later than they were sent.
`go_programs` says how it is found.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.faults import go_programs
from tests.ports import free_port

PROGRAM: Final = go_programs.Program(
    "toxiproxy-server",
    "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0",
    "SKYPLANE_TEST_TOXIPROXY",
)


@contextmanager
def running(log_file: Path, late_ms: int) -> Iterator[Callable[[str], str]]:
    """From the URL of a server to the URL at which its answers come late, until the block ends.

    Raises Unavailable: there is no toxiproxy, or it does not come up.
    """
    port = free_port()
    command = [str(PROGRAM.binary()), "-host", "127.0.0.1", "-port", str(port)]
    with go_programs.running(command, port, log_file, {"LOG_LEVEL": "error"}):
        api = f"http://127.0.0.1:{port}/proxies"

        def late(url: str) -> str:
            there, here = urlsplit(url), f"127.0.0.1:{free_port()}"
            name = here.replace(":", "-")
            _post(api, {"name": name, "listen": here, "upstream": there.netloc, "enabled": True})
            toxic = {"type": "latency", "stream": "downstream", "attributes": {"latency": late_ms}}
            _post(f"{api}/{name}/toxics", toxic)
            return there._replace(netloc=here).geturl()

        yield late


def _post(url: str, document: Mapping[str, object]) -> None:
    # It refuses the agents of browsers, for which it takes urllib's.
    headers = {"Content-Type": "application/json", "User-Agent": "skyplane-orchestration"}
    body = json.dumps(document).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)):
        pass
