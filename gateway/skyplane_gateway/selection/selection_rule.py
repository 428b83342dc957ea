"""Which objects are copied, to which keys, and what happens to those that are there."""

from __future__ import annotations

from dataclasses import dataclass, field
from os.path import commonprefix
from typing import get_args

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.job_options import ConflictRule, JobOptions, rules_of
from skyplane_gateway.common.key_patterns import Match, literal_start, matcher, matches_below
from skyplane_gateway.common.object_filter import UNBOUNDED, Bounds, has_key, has_key_below
from skyplane_gateway.common.objects import ASIDE_FOLDER, MANIFEST_FOLDER, PROJECT_FOLDER
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.selection.key_mapping import folder_of

CONFLICT_RULES: tuple[ConflictRule, ...] = get_args(ConflictRule)

#: Rules under which an object of the destination may stay without a failure.
KEEPING_RULES = tuple(rule for rule in CONFLICT_RULES if rule not in ("fail", "replace"))

#: The folder of this project's journals, which is never copied.
JOURNAL_FOLDER = f"{PROJECT_FOLDER}jobs/"


#: Folders of this project, at any depth, whose objects are neither copied nor deleted.
RESERVED_FOLDERS = (JOURNAL_FOLDER, ASIDE_FOLDER, MANIFEST_FOLDER)


def is_reserved(key: str) -> bool:
    """Whether a key is in one of the `RESERVED_FOLDERS`."""
    return PROJECT_FOLDER in key and any(f"/{one}" in f"/{key}" for one in RESERVED_FOLDERS)


@dataclass(frozen=True, slots=True)
class SelectionRule(JobOptions):
    """Which objects are copied, to which keys, and the conflict rule: the `JobOptions` of a job.

    Attributes:
        files_from: sorted keys below the source folder, each once; None for all.
        bounds: bounds of size and time.
        scope: what each name below the source folder begins with that `include` selects. Keys of
            other names need not be listed.
        makes_folders: an object that stands for a folder becomes one, since no file may be in its
            place.

    Raises:
        ConfigurationInvalid: there is no such conflict rule.
    """

    source_prefix: str
    destination_prefix: str
    files_from: tuple[str, ...] | None = None
    bounds: Bounds = UNBOUNDED
    makes_folders: bool = False
    scope: str = field(init=False, repr=False, compare=False)
    _includes: Match | None = field(init=False, repr=False, compare=False)
    _excludes: Match | None = field(init=False, repr=False, compare=False)
    _excludes_below: Match | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Patterns are compiled once: a listing matches millions of keys.
        scope = commonprefix([literal_start(one) for one in self.include])  # noqa: RUF071
        object.__setattr__(self, "scope", scope if self.recursive else "")
        object.__setattr__(self, "_includes", matcher(self.include))
        object.__setattr__(self, "_excludes", matcher(self.exclude))
        object.__setattr__(self, "_excludes_below", matcher(filter(matches_below, self.exclude)))
        if self.conflict not in CONFLICT_RULES:
            raise ConfigurationInvalid(
                f"unknown conflict rule {self.conflict!r}; use one of {', '.join(CONFLICT_RULES)}"
            )

    @classmethod
    def of(cls, spec: TransferSpec, now_unix_s: float) -> SelectionRule:
        """The rule of a transfer; durations of its filters count back from that time."""
        return cls(
            source_prefix=spec.source_prefix,
            destination_prefix=spec.destination_prefix,
            files_from=spec.filter.files_from,
            bounds=spec.filter.bounds(now_unix_s),
            makes_folders=spec.destination.kind == "file",
            **rules_of(spec),
        )

    def wants(self, key: str) -> bool:
        """Whether a key may pass the filters; for one that ends in a slash, any key below it."""
        if not self.recursive:
            return True
        name = key.removeprefix(folder_of(self.source_prefix))
        if not key.endswith("/"):
            return self.matches(name)
        if self.files_from is not None and not has_key_below(self.files_from, name):
            return False
        return self._excludes_below is None or not self._excludes_below(name)

    def matches(self, name: str) -> bool:
        """Whether patterns and the list of keys select this name below the source folder."""
        if self.files_from is not None and not has_key(self.files_from, name):
            return False
        if self._includes is not None and not self._includes(name):
            return False
        return self._excludes is None or not self._excludes(name)
