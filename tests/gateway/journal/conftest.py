from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.virtual_time import pytest_pyfunc_call
from tests.memory_store import create_bucket

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore, read_object

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(params=["memory", "file"])
def store(request: Any, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_store(StoreSpec("file", str(tmp_path)))
    spec = StoreSpec("memory", uuid.uuid4().hex)
    create_bucket(spec.bucket)
    return open_store(spec)


@pytest.fixture
def folder(store: ObjectStore) -> JournalFolder:
    return JournalFolder(store, "out/", "ab" * 16)


@pytest.fixture
def misreadings(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Bytes that the next reads of journals return in place of the stored ones."""
    read, wrong = read_object, list[bytes]()

    def misread(*arguments: Any, **more: Any) -> Any:
        info, body = read(*arguments, **more)
        return info, wrong.pop() if wrong else body

    monkeypatch.setattr("skyplane_gateway.journal.journal_folder.read_object", misread)
    return wrong
