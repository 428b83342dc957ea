"""Finds objects that only the destination has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from skyplane_gateway.common.objects import PROJECT_FOLDER, ObjectInfo
from skyplane_gateway.selection.candidates import Lister
from skyplane_gateway.selection.key_mapping import folder_of
from skyplane_gateway.selection.selection_rule import SelectionRule

#: After the last name.
_END: Final = (None, "")


class ExtraObjects:
    """The objects of the destination that pass the filters and that the source does not have.

    An object at the source counts even if the filters leave it out. So a filter protects the
    copies of what it leaves out, whether it looks at names, times or sizes.

    Args:
        on_missing: called with each name below the source folder that passes the filters, and that
            no object of the destination which passes them has.

    Attributes:
        selected: objects of the source that pass the filters; known at the end.
        there: objects of the destination that pass the filters; known at the end.
    """

    def __init__(
        self,
        rule: SelectionRule,
        list_source: Lister,
        list_destination: Lister,
        on_missing: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._rule = rule
        self._on_missing = on_missing
        self._list_source = list_source
        self._list_destination = list_destination
        self.selected = 0
        self.there = 0

    def __iter__(self) -> Iterator[ObjectInfo]:
        """In the order of keys, in constant memory.

        Use no object before the iteration has ended: a listing may still fail.

        Raises:
            StoreError: a listing failed.
        """
        self.selected = self.there = 0
        names = self._source_names()
        name, copied_as = next(names, _END)
        for found in self._destination_objects():
            self.there += 1
            below = self._below(self._rule.destination_prefix, found)
            while name is not None and name < below:
                self._is_missing(copied_as)
                name, copied_as = next(names, _END)
            # A file is in the way of the folder that its name's mark becomes.
            is_in_the_way = self._rule.makes_folders and copied_as == f"{below}/"
            if name == below and not is_in_the_way:
                name, copied_as = next(names, _END)
            else:
                yield found
        while name is not None:
            self._is_missing(copied_as)
            name, copied_as = next(names, _END)

    def _is_missing(self, copied_as: str) -> None:
        if copied_as:
            self._on_missing(copied_as)

    def _source_names(self) -> Iterator[tuple[str | None, str]]:
        """Names below the source folder, in their order; with the name of the copy, which for a
        folder ends in a slash, or empty where the filters leave it out."""
        rule = self._rule
        for found in self._list_source(folder_of(rule.source_prefix) + rule.scope):
            name = self._below(rule.source_prefix, found)
            is_selected = rule.matches(name) and rule.bounds.admit(found)
            self.selected += is_selected
            is_file = not found.is_folder or name.endswith("/")
            yield name, "" if not is_selected else name if is_file else f"{name}/"

    def _destination_objects(self) -> Iterator[ObjectInfo]:
        rule = self._rule
        for found in self._list_destination(folder_of(rule.destination_prefix) + rule.scope):
            name = self._below(rule.destination_prefix, found)
            if not name or f"/{PROJECT_FOLDER}" in f"/{found.key}":
                continue
            if rule.matches(name) and rule.bounds.admit(found):
                yield found

    @staticmethod
    def _below(prefix: str, found: ObjectInfo) -> str:
        return found.key.removeprefix(folder_of(prefix))
