"""The program that answers the requests of a session on a host."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skyplane_orchestration.provision.ssh import host_script

_WORKERS = 8


def test_workers_that_pin_at_once_read_one_whole_key(tmp_path: Path) -> None:
    """A key that another worker is about to write is never read as an empty one."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        for attempt in range(100):
            directory = tmp_path / str(attempt)
            directory.mkdir()
            barrier = threading.Barrier(_WORKERS)

            def pin(number: int, directory: Path = directory) -> object:
                barrier.wait()  # noqa: B023 - of this attempt
                request = {"path": str(directory), "key_id": f"{number:040}"}
                return host_script.pin(request, io.BytesIO())

            pinned = set(pool.map(pin, range(_WORKERS)))
            assert len(pinned) == 1
            assert len(str(pinned.pop())) == 40
            assert [path.name for path in directory.iterdir()] == ["key"]


IMAGE = "registry.example/gateway@sha256:" + "ab" * 32


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of images that were removed, by an engine that has all."""
    names: list[str] = []

    def engine(program: str, *words: str) -> str:
        if words[0] == "rmi":
            names.append(words[1])
        return ""

    monkeypatch.setattr(host_script, "_engine", engine)
    return names


def trial(folder: Path, script: str) -> Any:
    """The trial of a host with an image; `script` is its boot script."""
    request = {
        "root": str(folder / "root"),
        "image": IMAGE,
        "script": script,
        "archive_bytes": 0,
        "processes": 1,
        "port_range": [0, 0],
        "addresses": ["127.0.0.1", "127.0.0.1"],
        "open_files": 1,
    }
    return host_script.trial(request, io.BytesIO())


def test_the_last_of_two_trials_frees_their_image(tmp_path: Path, freed: list[str]) -> None:
    """The first one to end freed it, and the other one found that the image is not known."""
    for name in ("begun", "go"):
        os.mkfifo(tmp_path / name)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(trial, tmp_path, f"echo > {tmp_path}/begun; read x < {tmp_path}/go")
        (tmp_path / "begun").read_text()
        assert trial(tmp_path, "exit 0") == []
        before = list(freed)
        (tmp_path / "go").write_text("\n")
        assert first.result() == []
    assert before == []
    assert IMAGE in freed
    assert not (tmp_path / "root").exists()


def test_what_a_killed_trial_left_keeps_no_image(tmp_path: Path, freed: list[str]) -> None:
    left = tmp_path / "root" / "trials" / "0"
    left.mkdir(parents=True)
    (left / "image").write_text(IMAGE)
    assert trial(tmp_path, "exit 0") == []
    assert IMAGE in freed
    assert not (tmp_path / "root").exists()


def test_one_process_answers_requests_until_its_session_ends(tmp_path: Path) -> None:
    """With an error for the one that cannot be met."""
    requests = [
        {"verb": "tail", "path": str(tmp_path / "none"), "max_bytes": 10},
        {"verb": "pin", "path": str(tmp_path / "none"), "key_id": "11"},
        {"verb": "pin", "path": str(tmp_path), "key_id": "22"},
    ]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{Path(host_script.__file__).read_text()}\nmain()"],
        input="".join(f"{json.dumps(request)}\n" for request in requests).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    answers = [json.loads(line.removeprefix(b"skyplane ")) for line in done.stdout.splitlines()]
    assert answers == [{"value": ""}, {"error": [2, "No such file or directory"]}, {"value": "22"}]


def test_a_boot_script_is_seen_as_soon_as_it_has_started(tmp_path: Path) -> None:
    """The kernel shows the words of a process a moment after its start: it counted as ended."""
    os.mkfifo(tmp_path / "never")
    (tmp_path / "boot.sh").write_text(f"read line < {tmp_path}/never")
    for _ in range(20):
        script = host_script._boot(tmp_path, subprocess.DEVNULL)
        seen = host_script._pids(tmp_path, host_script._processes())
        script.kill()
        script.wait()
        assert seen == [script.pid]


def test_a_process_is_seen_while_it_becomes_another_program(tmp_path: Path) -> None:
    """An instance that seemed to have ended was launched again, and its directory removed."""
    (tmp_path / "boot.sh").write_text(f"exec /bin/sh {tmp_path}/boot.sh")
    script = host_script._boot(tmp_path, subprocess.DEVNULL)
    entry = Path(f"/proc/{script.pid}")
    assert all(host_script.command_line(entry).endswith(b"/boot.sh\0") for _ in range(300))
    script.kill()
    script.wait()
