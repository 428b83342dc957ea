"""Exit codes of the command, and the rule that chooses between 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from skyplane_orchestration.errors import SkyplaneError, SolverFailed, TransferFailed

SUCCESS: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130


class BadInput(Exception):
    """The input cannot be used; the command has changed nothing."""

    def __init__(self, error: SkyplaneError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def as_bad_input(*kinds: type[SkyplaneError]) -> Iterator[None]:
    """Turn errors of the given kinds (default: all) into BadInput, for steps that change nothing.

    A failure of the solver is not the fault of the input, and a failed transfer has begun.
    """
    try:
        yield
    except SkyplaneError as error:
        if isinstance(error, SolverFailed | TransferFailed) or (
            kinds and not isinstance(error, kinds)
        ):
            raise
        raise BadInput(error) from error
