from __future__ import annotations

import pytest

from skyplane_orchestration.wording import duration, size


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "?"), (1.25, "1.2 s"), (61, "1 min 1 s"), (7320, "2 h 2 min")]
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
