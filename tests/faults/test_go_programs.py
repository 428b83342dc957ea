"""A server that a test starts does not outlive the test's process."""

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ports import free_port

_STARTS = """
import sys, time
from pathlib import Path
from tests.faults.go_programs import running

folder, port = Path(sys.argv[1]), int(sys.argv[2])
command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
with running(command, port, folder / "log", {}, cwd=folder) as pid:
    print(pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv of util-linux is not here")
def test_a_server_ends_when_its_test_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _STARTS, str(tmp_path), str(free_port())]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        server = os.pidfd_open(int(starter.stdout.readline()))
        starter.send_signal(signal.SIGKILL)

    try:
        # A process that has ended makes its descriptor readable.
        assert select.select([server], [], [], 30)[0]
    finally:
        os.close(server)
