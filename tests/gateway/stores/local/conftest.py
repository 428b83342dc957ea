"""A file store in a temporary folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from skyplane_gateway.stores import ObjectStore, StoreSpec
from skyplane_gateway.stores.registry import open_without_retries


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> ObjectStore:
    return open_without_retries(StoreSpec("file", str(root)))
