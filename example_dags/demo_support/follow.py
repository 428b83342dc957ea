"""Runs an orchestrator's process and shows the telling part of what it says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

#: A line of output -> what to show of it; None for nothing.
Show = Callable[[str], str | None]


def follow(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    log_path: Path,
    show: Show,
) -> None:
    """Run a command to its end; all of its output goes to `log_path`, some of it to us.

    An interruption of ours ends the command too, in good order, before it goes on.
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
            start_new_session=True,  # Ctrl-C reaches it through us, once.
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
