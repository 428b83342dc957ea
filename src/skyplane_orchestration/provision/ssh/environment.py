"""Makes the Python environment of gateways, on a machine that has a bare Python.

It runs within the agent, so it imports the standard library only.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: The environment is whole once it has this file.
_COMPLETE: Final = "complete"
_MOST_LAST_WORDS: Final = 600
#: An answer must come before the session's timeout.
_WAIT_S: Final = 15.0


@dataclass(slots=True)
class _Making:
    """An environment that a thread makes."""

    thread: threading.Thread
    reason: str = ""


@dataclass(slots=True)
class EnvironmentMaker:
    """Makes environments in threads, since pip takes longer than a request may."""

    _making: dict[Path, _Making] = field(default_factory=dict)

    def make_environment(self, path: Path, requirements: str) -> str | None:
        """Make a virtual environment with these requirements, unless it is there.

        Args:
            path: its directory, whose parent exists.
            requirements: the text of a requirements file.

        Returns:
            Empty once it is there, a reason why it cannot be made, or None while it is being made.
            Then ask again.
        """
        if path not in self._making:
            thread = threading.Thread(target=self._make, args=(path, requirements), daemon=True)
            self._making[path] = _Making(thread)
            thread.start()
        making = self._making[path]
        making.thread.join(_WAIT_S)
        if making.thread.is_alive():
            return None
        return self._making.pop(path).reason

    def _make(self, path: Path, requirements: str) -> None:
        try:
            # Another orchestrator may make the same one.
            with Path(f"{path}.lock").open("w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not (path / _COMPLETE).exists():
                    _build(path, requirements)
        except subprocess.CalledProcessError as error:
            said = f"{error.stdout}".strip()[-_MOST_LAST_WORDS:]
            self._making[path].reason = said or f"status {error.returncode} of {error.cmd}"
        except OSError as error:
            self._making[path].reason = str(error)


def _build(path: Path, requirements: str) -> None:
    """Raises CalledProcessError and OSError."""
    _run(sys.executable, "-m", "venv", "--clear", str(path))
    (path / "requirements.txt").write_text(requirements, encoding="utf-8")
    # Wheels only: nothing of a package runs at its installation, and no compiler is needed.
    wheels = ("--no-input", "--no-cache-dir", "--no-deps", "--only-binary", ":all:")
    python, required = str(path / "bin" / "python"), str(path / "requirements.txt")
    _run(python, "-m", "pip", "install", *wheels, "--require-hashes", "-r", required)
    (path / _COMPLETE).touch()


def _run(*command: str) -> None:
    subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
