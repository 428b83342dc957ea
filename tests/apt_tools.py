"""Programs that tests of real machines and containers need from Debian's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

import pytest
from tests.e2e.container_tool import SEARCH_PATH


def require_tools(package_of: Mapping[str, str]) -> None:
    """Skip the test, with the reason, unless all these programs are here or can be installed.

    Args:
        package_of: program -> its package.
    """
    missing = [tool for tool in package_of if shutil.which(tool, path=SEARCH_PATH) is None]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(f"{', '.join(missing)} missing, and only root can install them by apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    packages = [package_of[tool] for tool in missing]
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "-qq", *command],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment,
        )
        if done.returncode:
            pytest.skip(f"{', '.join(missing)} missing, and apt-get failed: {done.stderr[-200:]}")
