"""The site builds without a warning; mkdocs checks links to generated names as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_the_site_builds_without_a_warning(repository: Path, tmp_path: Path) -> None:
    command = ["-m", "mkdocs", "build", "--quiet", "--strict"]
    # As `make docs` does: the program `mkdocs` cannot import the modules of docs/.
    assert f"python {' '.join(command)}\n" in (repository / "Makefile").read_text()
    built = subprocess.run(
        [sys.executable, *command, "--site-dir", tmp_path],
        cwd=repository,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    # HiGHS prints a line of debugging whatever its options (seen with SciPy 1.17.1).
    lines = (built.stdout + built.stderr).splitlines()
    assert [line for line in lines if not line.startswith("HighsMipSolverData::")] == []
    assert "skyplane-orch sweep" in (tmp_path / "reference/cli-options/index.html").read_text()
    assert "SkyplaneTransferOperator" in (tmp_path / "reference/operators/index.html").read_text()
