"""Where the output of an instance's gateways goes: the console, and one file for each gateway.

The console of an instance is the only output that its owner can read after its end. It may be
as slow as a serial line, so nothing waits for it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from pathlib import Path
from typing import Final, TextIO

#: Lines that wait for the console. With the longest lines they take 4 MiB.
_MOST_LINES: Final = 1024

#: Longest line on the console.
_MOST_CHARACTERS: Final = 4096

#: Longest wait for the console at the end.
_CLOSE_TIMEOUT_S: Final = 2.0

#: A log file is in memory (tmpfs): beyond the first size it is cut to its last bytes, of which
#: the control API shows at most one MiB.
_MOST_LOG_BYTES: Final = 4 << 20
_KEPT_LOG_BYTES: Final = 1 << 20


class InstanceConsole:
    """A text stream that never blocks: lines that the console is too slow for are left out."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines: queue.Queue[str | None] = queue.Queue(_MOST_LINES)
        self._left_out = 0
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Write whole lines."""
        for line in text.splitlines():
            try:
                self._lines.put_nowait(line[:_MOST_CHARACTERS])
            except queue.Full:
                self._left_out += 1

    def flush(self) -> None:
        """For `logging`; every line is flushed."""

    def close(self) -> None:
        """Wait for the console, but not for long."""
        try:
            self._lines.put(None, timeout=_CLOSE_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            left_out, self._left_out = self._left_out, 0
            if left_out:
                line = f"({left_out} lines were left out, the console is slow)\n{line}"
            try:
                self._out.write(line + "\n")
                self._out.flush()
            except (OSError, ValueError):
                continue  # There is no console any more; gateways do not depend on it.


class GatewayLog:
    """Copies the output of one gateway to its log file and, with its name, to the console."""

    def __init__(self, node: str, path: Path, console: InstanceConsole) -> None:
        self._node = node
        self._console = console
        self._file = path.open("w+b", buffering=0)
        self._size = 0
        self._begun = b""

    def write(self, output: bytes) -> None:
        # Without space for its log a gateway works on.
        with contextlib.suppress(OSError):
            self._size += self._file.write(output)
            if self._size > _MOST_LOG_BYTES:
                self._file.seek(self._size - _KEPT_LOG_BYTES)
                kept = self._file.read(_KEPT_LOG_BYTES)
                self._file.seek(0)
                self._file.truncate()
                self._size = self._file.write(kept)
        *lines, self._begun = (self._begun + output).split(b"\n")
        if len(self._begun) > _MOST_CHARACTERS:
            lines.append(self._begun)
            self._begun = b""
        self._show(lines)

    def close(self) -> None:
        self._show([self._begun] if self._begun else [])
        self._file.close()

    def _show(self, lines: list[bytes]) -> None:
        for line in lines:
            self._console.write(f"{self._node}: {line.decode(errors='replace')}")
