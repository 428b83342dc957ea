from __future__ import annotations

import socket

import pytest


@pytest.fixture
def unused_port_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
