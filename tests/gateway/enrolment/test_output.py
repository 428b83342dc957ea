from __future__ import annotations

import io
import os
import threading
from pathlib import Path

from skyplane_gateway.enrolment.output import GatewayLog, InstanceConsole


def test_lines_go_to_the_console_in_their_order() -> None:
    out = io.StringIO()
    console = InstanceConsole(out)
    console.write("one\n")
    console.write("two\nthree")
    console.close()
    assert out.getvalue() == "one\ntwo\nthree\n"


class _Stuck(io.StringIO):
    """A console that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stuck = threading.Event()
        self.goes_on = threading.Event()

    def write(self, text: str) -> int:
        self.is_stuck.set()
        self.goes_on.wait()
        return super().write(text)


def test_a_stuck_console_stops_nobody_and_says_how_much_it_lacks() -> None:
    out = _Stuck()
    console = InstanceConsole(out)
    console.write("first")
    out.is_stuck.wait()
    for _ in range(5000):
        console.write("x" * 100_000)
    out.goes_on.set()
    console.close()
    lines = out.getvalue().splitlines()
    assert lines[0] == "first"
    assert lines[1] == f"({5000 - 1024} lines were left out, the console is slow)"
    assert {len(line) for line in lines[2:]} == {4096}
    assert len(lines) == 2 + 1024


def test_a_console_that_is_gone_stops_nobody() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as out:
        console = InstanceConsole(out)
        console.write("one")
        console.write("two")
        console.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)


def test_output_of_a_gateway_goes_to_its_file_and_with_its_name_to_the_console(
    tmp_path: Path,
) -> None:
    out = io.StringIO()
    console = InstanceConsole(out)
    log = GatewayLog("a/0", tmp_path / "gateway.log", console)
    for output in (b"begin", b" end\nnext", b" line\n", b"\xff and no end of line"):
        log.write(output)
    log.close()
    console.close()
    assert (tmp_path / "gateway.log").read_bytes() == (
        b"begin end\nnext line\n\xff and no end of line"
    )
    assert out.getvalue() == "a/0: begin end\na/0: next line\na/0: \ufffd and no end of line\n"


def test_a_log_file_keeps_its_end_only(tmp_path: Path) -> None:
    console = InstanceConsole(io.StringIO())
    path = tmp_path / "gateway.log"
    log = GatewayLog("a/0", path, console)
    line = b"x" * 1023 + b"\n"
    for _ in range(20):
        log.write(line * 1024)
        assert path.stat().st_size <= 4 << 20
    log.write(b"the end\n")
    assert path.read_bytes().endswith(b"x\nthe end\n")
    log.close()
    console.close()


def test_output_without_an_end_of_line_is_not_collected(tmp_path: Path) -> None:
    out = io.StringIO()
    console = InstanceConsole(out)
    log = GatewayLog("a/0", tmp_path / "gateway.log", console)
    for _ in range(100):
        log.write(b"x" * 4097)
    log.close()
    console.close()
    assert len(out.getvalue().splitlines()) == 100
