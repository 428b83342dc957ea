"""The lead's memory does not grow with the number of objects (docs/internals/memory.md).

Every case runs in a process of its own, so that its peak is the lead's and not that of
another test. The objects are synthetic and take no memory.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

#: Ten seconds of a processor are minutes on a machine that has others to serve.
pytestmark = pytest.mark.timeout(1800)

PROGRAM: Final = "tests.gateway.lead.lead_memory"

#: A journal may be written while most is in flight, and allocators keep freed memory. A row
#: that is kept for each key would take more.
MAY_GROW_MIB = 24.0

CASES = [
    "copied",
    "copied last",
    "skipped",
    "behind skipped",
    "failed",
    "failed last",
    "long copied",
    "long failed",
    "long copied last",
    "behind long skipped",
    "resumed copied",
    "resumed copied last",
    "resumed skipped",
    "resumed failed",
    "resumed long copied",
    "resumed long failed",
]


@pytest.fixture(scope="session")
def bound_mib(repository: Path) -> float:
    """The bound that the page states."""
    text = (repository / "docs" / "internals" / "memory.md").read_text()
    (stated,) = re.findall(r"the lead's memory stays below \*\*(\d+) MiB\*\*", text)
    return float(stated)


def lead(case: str, keys: int, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, case, str(keys)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **(environment or {})},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["objects"] == keys
    assert found["journals"] == 0, "a transfer that has ended keeps its journal"
    how = "failed" if "failed" in case else "skipped" if "skipped" in case else "copied"
    assert found[how] == keys - int("behind skipped" in case or case == "behind long skipped")
    if how == "failed":
        assert found["error"]["code"] == "objects-failed", found["error"]
    else:
        assert found["state"] == "succeeded", found["error"]
    return found


@pytest.mark.long
def test_many_keys_take_no_more_memory_than_few(bound_mib: float) -> None:
    # With 40,000 keys every queue and list is full (LISTED_KEYS is 32,768). The keys that are
    # copied last are held longest.
    # One arena for all threads: with several, the same run takes up to 10 MiB more or less.
    few, many = (lead("copied last", keys, {"MALLOC_ARENA_MAX": "1"}) for keys in (40_000, 120_000))
    assert many["grown_mib"] < bound_mib
    # Usual are 2 to 6 MiB. With one `ObjectInfo` kept for each key it is 22.
    assert many["grown_mib"] - few["grown_mib"] < MAY_GROW_MIB / 2


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES)
def test_two_hundred_thousand_keys_at_their_worst(case: str, bound_mib: float) -> None:
    assert lead(case, 200_000)["grown_mib"] < bound_mib


@pytest.mark.soak
def test_a_million_keys_that_fail_after_an_epoch_that_knew_much(bound_mib: float) -> None:
    """Enough to fill every bound: the earlier epoch had ended most keys."""
    assert lead("resumed failed", 1_000_000)["grown_mib"] < bound_mib


@pytest.mark.soak
@pytest.mark.parametrize("case", ["copied", "failed", "copied last", "behind skipped"])
def test_a_million_keys(case: str, bound_mib: float) -> None:
    few, many = ([lead(case, keys)["grown_mib"] for _ in range(3)] for keys in (200_000, 1_000_000))
    assert max(many) < bound_mib
    # The same 200,000 took 72, 75 and 84 MiB.
    assert median(many) - median(few) < MAY_GROW_MIB
