"""What happens to provisioners, and that the conformance suite lets happen to each of them.

A test says `@pytest.mark.situation(QUOTA)`. A harness names in `lacks` the situations that cannot
occur there, with the reason, which begins after "because".
"""

from __future__ import annotations

from typing import Final

CREATE_TWICE: Final = "create twice"
CRASH: Final = "crash between launch and record"
SLOW_VISIBILITY: Final = "slow visibility"
QUOTA: Final = "quota"
NO_CAPACITY: Final = "no capacity"
SLOW_DELETE: Final = "slow delete"
DELETE_IN_USE: Final = "delete in use"
THROTTLED_API: Final = "throttled API"
PARTIAL_FAILURE: Final = "partial failure"
CLOCK_SKEW: Final = "clock skew"

SITUATIONS: Final = (
    CREATE_TWICE,
    CRASH,
    SLOW_VISIBILITY,
    QUOTA,
    NO_CAPACITY,
    SLOW_DELETE,
    DELETE_IN_USE,
    THROTTLED_API,
    PARTIAL_FAILURE,
    CLOCK_SKEW,
)
