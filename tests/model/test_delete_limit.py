from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.delete_limit import DeleteLimit


@pytest.mark.parametrize(
    ("text", "there", "most"),
    [("0", 9, 0), ("7", 3, 7), ("50%", 9, 4), ("0%", 9, 0), ("100%", 9, 9), ("12.5%", 8, 1)],
)
def test_limits(text: str, there: int, most: int) -> None:
    assert DeleteLimit.from_text(text).most(there) == most


@given(st.integers(0, 100), st.integers(0, 10**9))
@settings(deadline=None)
def test_a_share_is_never_more_than_it_says(percent: int, there: int) -> None:
    assert DeleteLimit.from_text(f"{percent}%").most(there) * 100 <= percent * there


@pytest.mark.parametrize("text", ["", "-1", "1.5", "101%", "%", "50 %", "many", "1e3", "\u0665"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="max_delete must be a number of objects"):
        DeleteLimit.from_text(text)
