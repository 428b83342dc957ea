"""Somebody who has a checkout and a home, and types what a page shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.docs.pages import Block
from tests.e2e.held_store import wait_for
from tests.packaging.environments import UV, skip_without_an_index, uv

#: Stands in for pip: packages come from a warm cache. `python` has the real one.
_QUICK_PIP: Final = f"""
pip() {{
    if test "$1" = install; then {UV} pip "$@"; else command pip "$@"; fi
}}
"""
_ACTIVATE: Final = "if test -d ~/skyplane; then . ~/skyplane/bin/activate; fi\n"
#: What would tell a command of this environment from that of the reader.
_OWN: Final = re.compile(r"AIRFLOW|AWS|DAGSTER|MPL|PYTEST|PYTHON|SKYPLANE|VIRTUAL_ENV|XDG")


@dataclass(frozen=True)
class Reader:
    """Args:
    checkout: where all commands run.
    home: has nothing at first; the environment of the pages is made here.
    variables: of the shell.
    """

    checkout: Path
    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def dags(self) -> Path:
        return self.home / "airflow" / "dags"

    @property
    def environment(self) -> dict[str, str]:
        """No program of the tests' environment is on the PATH, but its Python."""
        programs = self.home / "bin"
        if not programs.exists():
            programs.mkdir(parents=True)
            (self.home / "run").mkdir(mode=0o700)
            (programs / "python3").symlink_to(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
        kept = {name: value for name, value in os.environ.items() if not _OWN.match(name)}
        return {
            **kept,
            "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "UV_CACHE_DIR": uv("cache", "dir").stdout.strip(),
            "UV_SYSTEM_CERTS": "1",
            "PIP_CACHE_DIR": str(Path("~/.cache/pip").expanduser()),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            **self.variables,
        }

    def follow(self, blocks: Iterable[Block], saved_in: Path | None = None) -> str:
        """Type the blocks in one shell, and save those that have the name of a file.

        Returns what they print. Raises AssertionError with the end of it if a command fails.
        """
        return self.type("".join(self._typed(block, saved_in) for block in blocks))

    def type(self, text: str, *, quick_pip: bool = True) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._script(text, quick_pip)],
            cwd=self.checkout, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=400,
        )  # fmt: skip
        if done.returncode:
            skip_without_an_index(done.stderr)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    @contextmanager
    def running(self, text: str, says: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """A command that runs as long as the block, once it has said something."""
        log = self.home / "running.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", self._script(text, quick_pip=True)],
                cwd=self.checkout, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        try:
            said = wait_for(lambda: says.search(log.read_text()), says.pattern)
            assert said is not None
            yield said
        except BaseException:
            print(log.read_text()[-4000:])
            raise
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def packages(self) -> set[str]:
        """`name==version` of the environment of the pages."""
        listed = uv("pip", "freeze", "--python", self.home / "skyplane" / "bin" / "python")
        return set(listed.stdout.splitlines())

    @staticmethod
    def _script(text: str, quick_pip: bool) -> str:
        return (_QUICK_PIP if quick_pip else "") + _ACTIVATE + text

    def _typed(self, block: Block, saved_in: Path | None) -> str:
        if block.language == "bash":
            return block.text
        if not block.saved_as:
            return ""
        folder = shlex.quote(str(saved_in or self.checkout))
        path = f"{folder}/{shlex.quote(block.saved_as)}"
        return f"mkdir -p {folder}\ncat > {path} <<'END OF FILE'\n{block.text}END OF FILE\n"
