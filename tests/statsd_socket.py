"""A StatsD server that keeps what Airflow sends, as a UDP socket on loopback."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One datagram. `kind`: c for a counter, ms for a timer, g for a gauge."""

    name: str
    tags: dict[str, str]
    value: float
    kind: str


class StatsdSocket:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    @property
    def environment(self) -> dict[str, str]:
        """Settings of Airflow: this library's metrics go here, with their tags."""
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(self._listener.getsockname()[1]),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
            "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "skyplane.transfer",
        }

    def received(self) -> list[Metric]:
        """What has arrived since the last call."""
        found: list[Metric] = []
        while True:
            try:
                datagram = self._listener.recv(65536).decode()
            except BlockingIOError:
                return found
            match = re.fullmatch(r"([^,:]+)((?:,[^:]+)?):([^|:]+)\|(\w+)", datagram)
            assert match, datagram
            name, tags, value, kind = match.groups()
            pairs = (tag.split("=") for tag in tags.split(",")[1:])
            found.append(Metric(name, dict(pairs), float(value), kind))


@contextmanager
def statsd_socket() -> Iterator[StatsdSocket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        yield StatsdSocket(listener)
