"""A table of expectations, for end-to-end programs that are no tests of pytest."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Expectations:
    """What was expected, and whether it was so; each is printed when it is known.

    Attributes:
        failed: expectations that were not met.
    """

    met: int = 0
    failed: list[str] = field(default_factory=list)
    _scenario: str = ""
    _begun_s: float = field(default_factory=time.monotonic)

    def expect(self, what: str, found: object, wanted: object = True) -> None:
        """One row: `found` has to equal `wanted`."""
        holds = found == wanted
        row = f"{self._scenario}: {what}"
        if holds:
            self.met += 1
        else:
            self.failed.append(row)
        told = "" if holds else f"\n{'':<11}found {found!r}, wanted {wanted!r}"
        elapsed_s = time.monotonic() - self._begun_s
        print(f"{'yes' if holds else 'NO':<4}{elapsed_s:>5.0f} s {row}{told}", flush=True)

    @contextmanager
    def scenario(self, name: str) -> Iterator[None]:
        """What raises in the block is an expectation that was not met; the next block goes on."""
        self._scenario = name
        try:
            yield
        except (AssertionError, LookupError, OSError, ValueError) as error:
            traceback.print_exception(error, limit=-4)
            self.expect("comes to its end", str(error), "")

    def close(self) -> int:
        """Print the sums; the status of the program."""
        for row in self.failed:
            print(f"not met: {row}")
        print(f"{self.met} passed, {len(self.failed)} failed")
        return 1 if self.failed else 0
