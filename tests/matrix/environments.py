"""Environments of the matrix: interpreters, pins, installs. All of it is done by uv."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.matrix.lines import REPOSITORY, REQUIREMENTS, STRICT_CLOUDS, Line

FOLDER: Final = REPOSITORY / ".matrix"
_UV: Final = Path(sys.executable).with_name("uv")
_PROBE: Final = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"


class CommandFailed(Exception):
    """A command of uv failed; holds the end of what it said."""


def run_uv(*words: str | Path) -> str:
    """Standard output of a command of uv. Raises CommandFailed."""
    done = subprocess.run(
        [str(word) for word in (_UV, *words)],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CommandFailed((done.stdout + done.stderr)[-4000:])
    return done.stdout


def find_python(minor: str) -> Path | None:
    """An interpreter such as 3.12: on the PATH, or one that pyenv has and does not show."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        shutil.which(f"python{minor}"),
        *sorted(root.glob(f"versions/{minor}.*/bin/python")),
    ]
    for candidate in filter(None, candidates):
        # A shim of pyenv may be there and refuse.
        done = subprocess.run(
            [str(candidate), "-c", _PROBE], capture_output=True, text=True, check=False
        )
        version, _, executable = done.stdout.strip().partition(" ")
        if done.returncode == 0 and version == minor:
            return Path(executable)
    return None


def compile_pins(line: Line) -> None:
    """Resolve the line again: what users install, then what its suites need beside that.

    The files have neither hosts nor hashes.
    """
    extras = [word for extra in line.extras for word in ("--extra", extra)]
    oldest_python = min(line.pythons, key=lambda minor: int(minor.partition(".")[2]))
    options = ["--python-version", oldest_python, "--no-header", "--no-annotate", "--quiet"]
    if len(line.pythons) > 1:
        options.append("--universal")
    with tempfile.TemporaryDirectory() as folder:
        bounds = Path(folder) / "bounds.txt"
        bounds.write_text("\n".join(line.releases))
        more = Path(folder) / "more.txt"
        more.write_text("\n".join(line.also))
        needs: list[str | Path] = ["pyproject.toml", more, *extras]
        if line.is_oldest:
            run_uv("pip", "compile", "pyproject.toml", *extras, *options,
                 "--resolution", "lowest-direct", "--output-file", bounds)  # fmt: skip
            needs.append(REQUIREMENTS)
        run_uv("pip", "compile", *needs, *options,
             "--constraint", bounds, "--output-file", line.constraints)  # fmt: skip
    if line.suites and not line.is_oldest:
        run_uv("pip", "compile", REQUIREMENTS, *options,
             "--constraint", line.constraints, "--output-file", line.pins)  # fmt: skip


def environment(line: Line, minor: str, python: Path) -> Path:
    """Make the environment of a line, or take the one that is up to date.

    Returns its interpreter. Raises CommandFailed.
    """
    place = FOLDER / f"{line.name}-py{minor}"
    stamp, wanted = (
        place / "made-from",
        _digest(
            [
                line.constraints,
                line.pins,
                REQUIREMENTS,
                *(p / "pyproject.toml" for p in (REPOSITORY, STRICT_CLOUDS)),
            ]
        ),
    )
    if not stamp.exists() or stamp.read_text() != wanted:
        run_uv("venv", "--quiet", "--clear", "--python", python, place)
        run_uv("pip", "install", "--quiet", "--python", place / "bin" / "python",
             "--constraint", line.constraints, "--constraint", line.pins,
             "--requirement", REQUIREMENTS, *line.also,
             "--editable", f".[{','.join(line.extras)}]", "--editable", STRICT_CLOUDS)  # fmt: skip
        stamp.write_text(wanted)
    return place / "bin" / "python"


def _digest(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()
