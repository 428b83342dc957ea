"""Runs a process, keeps its output in a file and prints selected lines."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

#: A line of output -> the text to print; None for none.
Show = Callable[[str], str | None]


def follow(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    log_path: Path,
    show: Show,
) -> None:
    """Run a command; write its output to `log_path` and print what `show` selects.

    An interruption first ends the command with SIGTERM.
    """
    with (
        log_path.open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command,
            env=environment,
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the command.
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                log.write(line)
                if shown := show(line):
                    print(f"  {shown}", flush=True)
        except BaseException:
            process.terminate()
            process.wait()
            raise
