"""Exit codes, and the one place that decides between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from skyplane_orchestration.errors import SkyplaneError, SolverFailed

SUCCESS: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130


class Refused(Exception):
    """The input cannot be used; nothing was built and nothing was changed.

    Args:
        error: what is wrong with it.
    """

    def __init__(self, error: SkyplaneError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def refusing(*kinds: type[SkyplaneError]) -> Iterator[None]:
    """Errors inside (all, or of these kinds) mean that the input is bad: exit 2, not 1.

    For steps before anything is built. A solver that gave up is nobody's bad input.
    """
    try:
        yield
    except SkyplaneError as error:
        if isinstance(error, SolverFailed) or (kinds and not isinstance(error, kinds)):
            raise
        raise Refused(error) from error
