"""What is said about patterns of a job that match no key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from skyplane_gateway.selection.pattern_use import PatternUse
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob

_LISTED: Final = 10


def unmatched_warnings(patterns: Sequence[str], where: str, rule: SelectionRule) -> tuple[str, ...]:
    """A warning about patterns without a match, if there are any; `where`: such as `at SRC`."""
    if not patterns:
        return ()
    where += f" that begins with {rule.scope!r}, as include has it," if rule.scope else ""
    more = f" and {len(patterns) - _LISTED} more" if len(patterns) > _LISTED else ""
    return (
        f"no key {where} matches {', '.join(patterns[:_LISTED])}{more}, so nothing is left out or "
        "protected by that; a pattern has to match the whole key below the prefix, blanks and "
        "backslashes too, and tmp/ stands for all keys in a folder",
    )


def require_protection(job: TransferJob, use: PatternUse) -> None:
    """Raise ConfigurationInvalid if an exclude pattern seems to miss a folder that it names.

    `use` has seen all keys at both ends.
    """
    if job.allow_unmatched_patterns:
        return
    for pattern, key in use.matched_only_below().items():
        raise ConfigurationInvalid.about(
            "the pattern {pattern!r} of {exclude} matches no key at either end, so {delete} "
            "would not spare {key!r}; write {better!r}, or set {allow_unmatched_patterns}",
            pattern=pattern,
            key=key,
            better=f"{pattern}/**",
        )
