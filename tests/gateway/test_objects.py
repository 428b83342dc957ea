"""Values of object stores: sizes of parts, hidden credentials."""

from __future__ import annotations

import pytest

from skyplane_gateway.objects import MIB, Credentials, StoreCapabilities


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


def test_credentials_never_show_a_value() -> None:
    credentials = Credentials({"access_key_id": "AKIAX", "secret_access_key": "hush"})
    for text in (repr(credentials), str(credentials), f"{credentials}", f"{[credentials]}"):
        assert "hush" not in text
        assert "AKIAX" not in text
    assert Credentials.from_dict(credentials.to_dict())["secret_access_key"] == "hush"
