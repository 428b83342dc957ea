"""A bucket in memory for each test."""

from __future__ import annotations

import uuid

import pytest
from tests.memory_store import create_bucket

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore


@pytest.fixture
def memory() -> ObjectStore:
    spec = StoreSpec("memory", uuid.uuid4().hex)
    create_bucket(spec.bucket)
    return open_store(spec)
