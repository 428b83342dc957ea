"""Fixtures for every test: the repository and the reference data beside it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_dir(repository: Path) -> Path:
    """The folder `shared` beside the repository: measurements to compare with."""
    folder = repository.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the reference data (a folder `shared` beside the repository) is not here")
    return folder
