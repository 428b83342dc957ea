"""The suite fails for every fence that is taken away, and for nothing else."""

from __future__ import annotations

import pytest
from tests.simulation.mutations import MUTATIONS, ROOT, Edit, Moved, Mutation, judge


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_a_mutation_replaces_is_there_once(mutation: Mutation) -> None:
    for edit in mutation.edits:
        assert (ROOT / edit.path).read_text().count(edit.old) == 1, edit
        assert edit.old != edit.new


def test_every_fence_has_two_mutations_at_least() -> None:
    fences = [mutation.fence for mutation in MUTATIONS]
    assert set(fences) == {
        "receipt deadline",
        "epoch check",
        "precondition at commit",
        "source pinning",
        "read-back or checksum comparison",
    }
    assert all(fences.count(fence) >= 2 for fence in fences)


def test_text_that_has_moved_is_no_mutation() -> None:
    with pytest.raises(Moved):
        Edit("setup.cfg", "this text is nowhere", "").apply(ROOT)


@pytest.mark.soak
@pytest.mark.parametrize(
    "mutation", [None, *MUTATIONS], ids=lambda row: row.name if row else "none"
)
def test_the_suite_fails_for_every_mutation(mutation: Mutation | None) -> None:
    verdict = judge(mutation)
    assert not verdict.trouble
    assert bool(verdict.failed) == (mutation is not None), verdict
