"""Which requests are harmed and how: rules that a proxy before a store follows.

A rule counts the requests that fit it; the `nth` and those after it, `times` in all, are
harmed. The same requests in the same order are always harmed in the same way, and a
schedule made from a seed is the same in every process.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Final

ACTIONS: Final = (
    "answer",  # answer `status`, `headers`, `body`; with `forward`, after the store did it
    "truncate",  # the answer's body ends after `keep_bytes`, its Content-Length stays
    # The store is not told the Range, so it answers 200 with everything; where the Range is
    # signed, it answers the range and is made to call it 200.
    "whole",
    "flip",  # one bit in the middle of the answer's body is another
    # An object with `Content-Encoding: gzip` is answered decompressed and without its length unless
    # the client takes gzip; others have no length where it does. As R2 does.
    "decompress",
    "rewrite",  # in the answer's body `pattern` becomes `replacement`
    "delay",  # `delay_s` passes before the request is forwarded
    "hold",  # the request is read, and forwarded once the proxy is told to release what it holds
    "drop-request",  # the connection is closed, the store hears nothing
    "drop-reply",  # the store does it, then the connection is closed without an answer
    "reset",  # as drop-reply, with RST in place of FIN
)

EXPIRED: Final = b"<Error><Code>ExpiredToken</Code><Message>m</Message></Error>"
SLOW_DOWN: Final = b"<Error><Code>SlowDown</Code><Message>m</Message></Error>"
INTERNAL_ERROR: Final = b"<Error><Code>InternalError</Code><Message>m</Message></Error>"


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault.

    Attributes:
        action: one of `ACTIONS`.
        method: regular expression that the whole method fits.
        target: regular expression found in the request's target (path and query, as sent).
        header: regular expression found in a line `Name: value` of the request's head.
        without: the same, found in no line.
        nth: the first of the fitting requests that is harmed, from 1.
        times: how many are harmed from there on; 0 for all.
        forward: `answer` only once the store has carried the request out.
    """

    action: str
    method: str = ".*"
    target: str = ""
    header: str = ""
    without: str = ""
    nth: int = 1
    times: int = 1
    status: int = 503
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    forward: bool = False
    keep_bytes: int = 0
    delay_s: float = 0.0
    pattern: bytes = b""
    replacement: bytes = b""

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"there is no action {self.action!r}; choose one of {ACTIONS}")

    def fits(
        self, method: str, target: str, headers: Sequence[tuple[str, str]] | None = None
    ) -> bool:
        """Whether a request is of those that are harmed; its head counts where it is given."""
        if not (re.fullmatch(self.method, method) and re.search(self.target, target)):
            return False
        if headers is None:
            return True
        head = "\n".join(f"{name}: {value}" for name, value in headers)
        how = re.IGNORECASE | re.MULTILINE
        is_without = not self.without or not re.search(self.without, head, how)
        return is_without and bool(re.search(self.header, head, how))


@dataclass
class Schedule:
    """Rules and how often each was met. Thread-safe; the first rule that is due is followed."""

    rules: list[Rule] = field(default_factory=list)
    _met: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *rules: Rule) -> None:
        with self._lock:
            self.rules.extend(rules)

    def clear(self) -> None:
        with self._lock:
            self.rules.clear()
            self._met.clear()

    def due(self, method: str, target: str, headers: Sequence[tuple[str, str]] = ()) -> Rule | None:
        """The rule for this request, which is counted by every rule that it fits."""
        chosen: Rule | None = None
        with self._lock:
            self._met.extend([0] * (len(self.rules) - len(self._met)))
            for index, rule in enumerate(self.rules):
                if not rule.fits(method, target, headers):
                    continue
                self._met[index] += 1
                past = self._met[index] - rule.nth
                is_due = past >= 0 and (rule.times == 0 or past < rule.times)
                if is_due and chosen is None:
                    chosen = rule
        return chosen


#: What can hit any request of a store without making a right outcome impossible.
TRANSIENT: Final = (
    Rule("answer", status=503, body=SLOW_DOWN, headers=(("Retry-After", "0"),)),
    Rule("answer", status=500, body=INTERNAL_ERROR),
    Rule("answer", status=500, body=INTERNAL_ERROR, forward=True),
    Rule("drop-request"),
    Rule("drop-reply"),
    Rule("reset"),
    Rule("truncate", method="GET", keep_bytes=7),
    Rule("whole", method="GET"),
)


def random_rules(
    seed: int, count: int, *, within: int, kinds: Sequence[Rule] = TRANSIENT
) -> list[Rule]:
    """`count` faults of the kinds given, each at one of the first `within` requests it fits."""
    dice = random.Random(seed)
    chosen = []
    for _ in range(count):
        kind = dice.choice(kinds)
        values = {each.name: getattr(kind, each.name) for each in fields(kind)}
        chosen.append(Rule(**{**values, "nth": dice.randint(1, within)}))
    return chosen
