"""Values of object stores: sizes of parts, hidden credentials."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skyplane_gateway.common.objects import MIB, Credentials, StoreCapabilities


def _capabilities(min_part_bytes: int = 1, max_parts: int = 10_000) -> StoreCapabilities:
    return StoreCapabilities(
        trusts_checksum=True,
        min_part_bytes=min_part_bytes,
        max_part_bytes=5 * 1024 * MIB,
        max_parts=max_parts,
        max_object_bytes=5 * 1024 * 1024 * MIB,
    )


@pytest.mark.parametrize(
    ("object_bytes", "wanted_bytes", "min_part_bytes", "part_bytes"),
    [
        (100_000, 32_768, 1, 32_768),
        (100 * MIB, 16 * MIB, 5 * MIB, 16 * MIB),
        (100 * MIB, 1 * MIB, 5 * MIB, 5 * MIB),
        (10_000 * 16 * MIB, 16 * MIB, 5 * MIB, 16 * MIB),
        (10_000 * 16 * MIB + 1, 16 * MIB, 5 * MIB, 17 * MIB),
        (0, 16 * MIB, 5 * MIB, 16 * MIB),
    ],
)
def test_parts_are_as_wanted_unless_the_store_needs_larger_ones(
    object_bytes: int, wanted_bytes: int, min_part_bytes: int, part_bytes: int
) -> None:
    found = _capabilities(min_part_bytes).part_bytes(object_bytes, wanted_bytes)
    assert found == part_bytes
    assert -(-object_bytes // found) <= 10_000


@pytest.mark.parametrize(
    ("object_bytes", "roomy_bytes", "part_bytes"),
    [
        (512 * MIB, 64 * MIB, 16 * MIB),
        (512 * MIB + 1, 64 * MIB, 17 * MIB),
        (2048 * MIB, 64 * MIB, 64 * MIB),
        (5000 * MIB, 64 * MIB, 64 * MIB),
        (5000 * MIB, 5 * MIB, 16 * MIB),
    ],
)
def test_parts_are_as_few_as_are_joined_at_once_where_memory_allows_it(
    object_bytes: int, roomy_bytes: int, part_bytes: int
) -> None:
    joining = replace(_capabilities(), joined_parts=32)
    assert joining.part_bytes(object_bytes, 16 * MIB, roomy_bytes) == part_bytes
    assert _capabilities().part_bytes(object_bytes, 16 * MIB, roomy_bytes) == 16 * MIB


def test_credentials_never_show_a_value() -> None:
    credentials = Credentials({"access_key_id": "AKIAX", "secret_access_key": "hush"})
    for text in (repr(credentials), str(credentials), f"{credentials}", f"{[credentials]}"):
        assert "hush" not in text
        assert "AKIAX" not in text
    assert Credentials.from_dict(credentials.to_dict())["secret_access_key"] == "hush"
