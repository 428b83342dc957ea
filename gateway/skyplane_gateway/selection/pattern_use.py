"""Which patterns of a rule match a key: one that matches none leaves out and protects nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from skyplane_gateway.common.kept_properties import is_project_object
from skyplane_gateway.common.key_patterns import compiled, expression
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.selection.candidates import Lister
from skyplane_gateway.selection.key_mapping import folder_of
from skyplane_gateway.selection.publish_order import expression_of_last
from skyplane_gateway.selection.selection_rule import SelectionRule


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
        self._source_folder = folder_of(rule.source_prefix)
        self._folder = folder_of(rule.destination_prefix) if rule.recursive else ""
        # Of keys at the destination, so that one expression serves for all of them.
        start = re.escape(self._folder)
        self._open = {("include", one): start + expression(one) for one in rule.include}
        self._open |= {("exclude", one): start + expression(one) for one in rule.exclude}
        for one in publish_last if rule.recursive else ():
            self._open["publish_last", one] = expression_of_last(one, self._folder)
        for one in rule.exclude if looks_below else ():
            self._open["below", one] = start + expression(f"{one}/**")
        self._probe = compiled(self._open.values())
        self._below: dict[str, str] = {}
        self._skipped: list[str] = []
        for name in rule.files_from or ():
            self._see("", name)

    def unmatched(self) -> tuple[str, ...]:
        """The patterns without a match, each with its kind, such as `exclude 'tmp'`.

        Call it when all is listed.
        """
        while self._skipped:
            self.see(self._skipped.pop())
        return tuple(f"{kind} {one!r}" for kind, one in self._open if kind != "below")

    def matched_only_below(self) -> dict[str, str]:
        """Exclude pattern without a match -> the first key that it would match with `/**`."""
        return self._below if self.unmatched() else {}

    def watch(self, lister: Lister, prefix: str) -> Lister:
        """The same listing of a place with this prefix; its keys count."""
        folder = folder_of(prefix)

        def watched(start: str) -> Iterator[ObjectInfo]:
            for row in lister(start):
                self._see(folder, row.key)
                yield row

        return watched

    def wants(self, key: str) -> bool:
        """As `SelectionRule.wants`; what a listing skips for a pattern counts as its match."""
        is_wanted = self._rule.wants(key)
        if not is_wanted:
            self._skipped.append(key)  # Another thread may list.
        return is_wanted

    def see(self, key: str) -> None:
        """The source has a key."""
        self._see(self._source_folder, key)

    def _see(self, folder: str, key: str) -> None:
        if self._probe is None:
            return
        is_one = not self._rule.recursive
        name = key[key.rstrip("/").rfind("/") + 1 :] if is_one else key.removeprefix(folder)
        at = self._folder + name
        if not self._probe(at):
            return
        for kind, one in [one for one, text in self._open.items() if re.match(text, at)]:
            if kind == "below" and is_project_object(at):
                continue  # Nothing deletes it.
            self._open.pop((kind, one), None)
            if kind == "below":
                self._below.setdefault(one, name)
            if kind == "exclude":
                self._open.pop(("below", one), None)
        self._below = {
            one: key for one, key in self._below.items() if ("exclude", one) in self._open
        }
        self._probe = compiled(self._open.values())
