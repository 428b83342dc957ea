from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.main import announce, main, read_config, remove_traces

KEY = "ab" * 16


def document(directory: Path, **changes: Any) -> dict[str, Any]:
    config = GatewayConfig(
        node="a/0",
        fleet_key=KEY,
        control_host="127.0.0.1",
        data_host="127.0.0.1",
        directory=str(directory),
        hello_keys_hex={"b/0": "00" * 32},
    )
    return {**config.to_dict(), **changes}


def test_a_configuration_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gateway.json"
    path.write_text(json.dumps(document(tmp_path, readers=3)))
    assert read_config(path, KEY).readers == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot read"),
        ("{", "cannot read"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("{}", "lacks"),
        (json.dumps(document(Path("/x"), readers="8")), "readers must be a whole number"),
        (json.dumps(document(Path("/x"), readers=0)), "readers must be a whole number"),
        (json.dumps(document(Path("/x"), surprise=1)), "surprise"),
        (json.dumps(document(Path("/x"), fleet_key="cd" * 16)), "is of fleet"),
        (json.dumps(document(Path("/x"), hello_keys_hex={"b/0": "zz"})), "hello_keys_hex"),
        ("\x00\xff", "cannot read"),
    ],
)
def test_a_configuration_that_cannot_be_used_ends_it_with_2_and_one_line(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gateway.json"
    path.write_bytes(text.encode("latin-1"))
    assert main(["--config", str(path), "--fleet", KEY]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert says in captured.err
    assert "00000000" not in captured.err


def test_a_missing_file_and_a_fleet_key_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(tmp_path / "none"), "--fleet", KEY]) == 2
    assert "cannot read" in capsys.readouterr().err
    path = tmp_path / "gateway.json"
    path.write_text(json.dumps(document(tmp_path, fleet_key="f1ee7")))
    with pytest.raises(ConfigurationInvalid, match="fleet key"):
        read_config(path, "f1ee7")


def test_from_the_outside_there_is_no_traceback(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "skyplane_gateway", "--config", str(tmp_path / "x"), "--fleet", KEY],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("skyplane-gateway: cannot read")
    assert len(ended.stderr.splitlines()) == 1


def config_in(directory: Path) -> GatewayConfig:
    directory.mkdir(parents=True)
    return GatewayConfig.from_dict(document(directory))


def test_ready_is_announced_whole(tmp_path: Path) -> None:
    config = config_in(tmp_path / "fleet" / "a")
    announce(config, 4000, 4001)
    assert json.loads(config.ready_path.read_text()) == {
        "control_port": 4000,
        "data_port": 4001,
        "pid": os.getpid(),
    }
    assert [path.name for path in Path(config.directory).iterdir()] == ["ready.json"]


def test_the_last_gateway_removes_the_fleets_directory(tmp_path: Path) -> None:
    one, other = (config_in(tmp_path / "fleet" / name) for name in ("a", "b"))
    remove_traces(one)
    assert (tmp_path / "fleet").exists()
    (tmp_path / "fleet" / "fleet-meta.json").write_text("{}")
    remove_traces(other)
    assert not (tmp_path / "fleet").exists()
    remove_traces(other)


def test_a_directory_that_somebody_works_on_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(seconds: float) -> None:
        raise AssertionError("the teardown of the fleet waits for this gateway to end")

    monkeypatch.setattr("skyplane_gateway.main.time.sleep", wait)
    config = config_in(tmp_path / "fleet" / "a")
    lock = os.open(tmp_path / "fleet", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_traces(config)
    finally:
        os.close(lock)
    assert list((tmp_path / "fleet").iterdir()) == []


def test_of_two_that_end_at_once_one_removes_the_fleets_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is asked for once, and only by gateways that have seen no other directory."""
    one, other = (config_in(tmp_path / "fleet" / name) for name in ("a", "b"))
    flock = fcntl.flock

    def slow_flock(descriptor: int, how: int) -> None:
        flock(descriptor, how)
        monkeypatch.setattr("skyplane_gateway.main.fcntl.flock", flock)
        remove_traces(other)  # Finds the lock taken.

    monkeypatch.setattr("skyplane_gateway.main.fcntl.flock", slow_flock)
    shutil.rmtree(other.directory)
    remove_traces(one)
    assert not (tmp_path / "fleet").exists()


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [("threading.Event().wait", 3, ""), ("lambda: time.sleep(0.1)", 0, "well\n")],
)
def test_a_thread_that_waits_for_a_store_does_not_hold_up_the_exit(
    work: str, code: int, said: str
) -> None:
    """Its process would otherwise outlive its lease by the timeouts of an SDK."""
    program = (
        "import threading, time\n"
        "from skyplane_gateway.main import leave_busy_threads\n"
        f"threading.Thread(target={work}).start()\n"
        "leave_busy_threads(3)\n"
        "print('well')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (code, said)


def test_the_exit_collects_no_loaded_modules(tmp_path: Path) -> None:
    """It took most of the time from the request to end to the end of the process."""
    program = (
        "import atexit, gc\n"
        "from skyplane_gateway.main import entry_point\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "entry_point()\n"
    )
    arguments = ["--config", str(tmp_path / "none"), "--fleet", "ab" * 16]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "True\n")


#: Frees 16 MiB at a time, and prints the page faults of the last 20 times.
_FRAMES: Final = """
import resource, sys
from skyplane_gateway.main import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def frames():
    return [bytearray(b"x") * (1 << 20) for _ in range(16)]
for turn in range(25):
    if turn == 5:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    frames()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _FRAMES, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_frames_use_the_memory_of_earlier_frames() -> None:
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("this C library is not glibc")
    assert _faults("keep") < 1000 < _faults("default")
