"""Which patterns of a rule match a key: one that matches none leaves out and protects nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from skyplane_gateway.key_patterns import Match, match_of
from skyplane_gateway.objects import ObjectInfo
from skyplane_gateway.selection.key_mapping import folder_of
from skyplane_gateway.selection.publish_order import announces
from skyplane_gateway.selection.rules import Lister, SelectionRule


class PatternUse:
    """The patterns of a rule that no listed key has matched yet.

    Args:
        publish_last: see `is_published_last`.
        looks_below: also look for keys that an exclude pattern would match with `/**` behind it.
    """

    def __init__(
        self, rule: SelectionRule, publish_last: Iterable[str] = (), *, looks_below: bool = False
    ) -> None:
        self._rule = rule
        kinds = {"include": rule.include, "exclude": rule.exclude}
        self._open: dict[tuple[str, str], Match] = {
            (kind, one): match_of(one) for kind, patterns in kinds.items() for one in patterns
        }
        if rule.recursive:
            last = {("publish_last", one): partial(self._announces, one) for one in publish_last}
            self._open |= last
        below = rule.exclude if looks_below else ()
        self._open_below = {one: match_of(f"{one}/**") for one in below}
        self._below: dict[str, str] = {}
        self._skipped: list[str] = []
        for name in rule.files_from or ():
            self._see(name)

    def unmatched(self) -> tuple[str, ...]:
        """The patterns without a match, each with its kind, such as `exclude 'tmp'`.

        Call it when all is listed.
        """
        while self._skipped:
            self.see(self._skipped.pop(), self._rule.source_prefix)
        return tuple(f"{kind} {pattern!r}" for kind, pattern in self._open)

    def matched_only_below(self) -> dict[str, str]:
        """Exclude pattern without a match -> the first key that it would match with `/**`."""
        return self._below if self.unmatched() else {}

    def watch(self, lister: Lister, prefix: str) -> Lister:
        """The same listing of a place with this prefix; its keys count."""

        def watched(start: str) -> Iterator[ObjectInfo]:
            for row in lister(start):
                self.see(row.key, prefix)
                yield row

        return watched

    def wants(self, key: str) -> bool:
        """As `SelectionRule.wants`; what a listing skips for a pattern counts as its match."""
        is_wanted = self._rule.wants(key)
        if not is_wanted:
            self._skipped.append(key)  # Another thread may list.
        return is_wanted

    def see(self, key: str, prefix: str) -> None:
        """A place with this prefix has a key."""
        if not self._open:
            return
        if self._rule.recursive:
            self._see(key.removeprefix(folder_of(prefix)))
        else:
            self._see(key[key.rstrip("/").rfind("/") + 1 :])

    def _announces(self, pattern: str, name: str) -> bool:
        prefix = self._rule.destination_prefix
        return announces(folder_of(prefix) + name, (pattern,), prefix)

    def _see(self, name: str) -> None:
        for kind, pattern in [one for one, match in self._open.items() if match(name)]:
            del self._open[kind, pattern]
            if kind == "exclude":
                self._open_below.pop(pattern, None)
                self._below.pop(pattern, None)
        for pattern in [one for one, match in self._open_below.items() if match(name)]:
            del self._open_below[pattern]
            self._below[pattern] = name
