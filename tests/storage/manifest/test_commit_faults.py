"""A commit of which every request, one after the other, meets a fault or another commit.

The number of requests is not known beforehand: each test goes on until a commit meets no fault.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import pytest
from tests.memory_store import MemoryStore
from tests.storage.manifest.lab import (
    FOLDER,
    PREFIX,
    Changes,
    commit,
    contents,
    empty_store,
    snapshot,
    table,
)

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.manifest.document import read_pointer
from skyplane_orchestration.errors import PreconditionFailed, StoreError, StoreUnavailable
from skyplane_orchestration.storage.manifest import commit as module
from skyplane_orchestration.storage.manifest.commit import ManifestCommit

#: Called with the request itself: does it, or something else.
Fault = Callable[[Callable[[], Any]], Any]

EARLIER: Final = {"a": "1", "b": "1"}
OWN: Final[Changes] = {"b": None, "c": "2"}
OTHER: Final[Changes] = {"a": "3", "d": "3"}


class Killed(BaseException):
    """No handler of errors sees it, as none sees SIGKILL."""


class FaultyStore(MemoryStore):
    """The place of `empty_store`; its `at`-th request meets the fault."""

    def __init__(self, at: int, fault: Fault) -> None:
        super().__init__(StoreSpec("memory", "commits"))
        self.requests: list[str] = []
        self._at = at
        self._fault = fault
        self._counting = threading.Lock()

    @property
    def met(self) -> str:
        """The request that met the fault; empty where there were too few."""
        return self.requests[self._at] if len(self.requests) > self._at else ""

    def _sent(self, what: str, request: Callable[[], Any]) -> Any:
        with self._counting:
            self.requests.append(what)
            is_it = len(self.requests) == self._at + 1
        return self._fault(request) if is_it else request()

    def list(self, prefix: str, **more: Any) -> Iterator[Any]:
        listed = super().list
        yield from self._sent("list", lambda: list(listed(prefix, **more)))

    def head(self, key: str) -> Any:
        looked = super().head
        return self._sent(f"head {key}", lambda: looked(key))

    def read(self, key: str, **more: Any) -> Any:
        read = super().read
        return self._sent(f"read {key}", lambda: read(key, **more))

    def put(self, key: str, data: Any, **more: Any) -> Any:
        put = super().put
        return self._sent(f"put {key}", lambda: put(key, data, **more))

    def delete(self, key: str, **more: Any) -> Any:
        delete = super().delete
        return self._sent(f"delete {key}", lambda: delete(key, **more))


def at_each_request(
    fault: Fault, *, earlier: Changes | None = EARLIER
) -> Iterator[tuple[FaultyStore, MemoryStore]]:
    """A place with an earlier commit or none; ends after a commit without a fault."""
    for at in count():
        plain = empty_store()
        if earlier is not None:
            commit(plain, "earlier", earlier)
        store = FaultyStore(at, fault)
        yield store, plain
        if not store.met:
            assert at > 4
            return


def applied(*runs: Changes) -> dict[str, str]:
    known: dict[str, str | None] = {}
    for changes in runs:
        known |= changes
    return {key: copy for key, copy in sorted(known.items()) if copy is not None}


BEGINNINGS = pytest.mark.parametrize("earlier", [None, EARLIER], ids=["first", "later"])


@BEGINNINGS
def test_another_commit_at_any_request_loses_no_rows(earlier: Changes | None) -> None:
    def other_first(request: Callable[[], Any]) -> Any:
        commit(empty_is_kept, "other", OTHER)
        return request()

    empty_is_kept = MemoryStore(StoreSpec("memory", "commits"))
    for store, plain in at_each_request(other_first, earlier=earlier):
        commit(store, "own", OWN)
        found = read_pointer(plain, FOLDER)
        assert found is not None
        ids = {one.id for one in found[0].snapshots}
        expected = {"own", "other"} if store.met else {"own"}
        assert ids - {"earlier"} == expected, store.met
        runs = (earlier or {}, OTHER if store.met else {}, OWN)
        assert contents(plain) == applied(*runs), store.met
        assert nothing_left(plain), store.met


def nothing_left(store: MemoryStore) -> bool:
    """Whether the pointer names every file."""
    found = read_pointer(store, FOLDER)
    named = {one.name for one in found[0].segments} if found else set()
    stems = {info.key.removeprefix(PREFIX).rpartition(".")[0] for info in store.list(PREFIX)}
    return stems == {*named, "pointer"}


def test_many_commits_at_once_all_end_up_in_it() -> None:
    plain = empty_store()
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            commit(MemoryStore(plain.spec), f"run {number}", {f"k{number}": "x"})
        except BaseException as error:  # noqa: BLE001 - the test shows it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert contents(plain) == {f"k{number}": "x" for number in range(6)}


@BEGINNINGS
def test_an_answer_that_is_lost_at_any_request_leaves_one_whole_state(
    earlier: Changes | None,
) -> None:
    """The store has carried the request out, and there was no retry."""

    def lost(request: Callable[[], Any]) -> Any:
        request()
        raise StoreUnavailable("the answer is lost")

    _ends_well(lost, earlier, StoreError)


@BEGINNINGS
def test_an_error_at_any_request_leaves_one_whole_state(earlier: Changes | None) -> None:
    def refused(request: Callable[[], Any]) -> Any:
        raise StoreError("no space left on device", is_permanent=True)

    _ends_well(refused, earlier, StoreError)


@BEGINNINGS
def test_a_kill_before_any_request_leaves_one_whole_state(earlier: Changes | None) -> None:
    def killed(request: Callable[[], Any]) -> Any:
        raise Killed

    _ends_well(killed, earlier, Killed)


@BEGINNINGS
def test_a_kill_after_any_request_leaves_one_whole_state(earlier: Changes | None) -> None:
    def killed(request: Callable[[], Any]) -> Any:
        request()
        raise Killed

    _ends_well(killed, earlier, Killed)


def _ends_well(fault: Fault, earlier: Changes | None, error: type[BaseException]) -> None:
    """The next reader sees the old or the new state whole; a later commit is whole as well."""
    old = applied(earlier or {})
    for store, plain in at_each_request(fault, earlier=earlier):
        has_ended = True
        try:
            commit(store, "own", OWN)
        except error:
            has_ended = False
        new = applied(earlier or {}, OWN)
        found = contents(plain)
        assert found == new if has_ended else found in (old, new), store.met
        commit(plain, "later", OTHER)
        assert contents(plain) == applied(found, OTHER), store.met


@BEGINNINGS
def test_a_write_that_is_sent_again_after_a_lost_answer_is_ours(earlier: Changes | None) -> None:
    """As `RetryingStore` does: the second sending meets what the first one wrote."""

    def twice(request: Callable[[], Any]) -> Any:
        request()
        return request()

    for store, plain in at_each_request(twice, earlier=earlier):
        commit(store, "own", OWN)
        found = read_pointer(plain, FOLDER)
        assert found is not None
        assert [one.id for one in found[0].snapshots][-1] == "own"
        assert contents(plain) == applied(earlier or {}, OWN), store.met
        assert nothing_left(plain), store.met


def test_a_place_that_changes_all_the_time_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = empty_store()
    numbers = count()
    replace = ManifestCommit._replace

    def too_late(self: ManifestCommit, *arguments: Any) -> bool:
        monkeypatch.setattr(ManifestCommit, "_replace", replace)
        commit(plain, f"other {next(numbers)}", OTHER)
        monkeypatch.setattr(ManifestCommit, "_replace", too_late)
        return replace(self, *arguments)

    monkeypatch.setattr(ManifestCommit, "_replace", too_late)
    with pytest.raises(PreconditionFailed, match="all the time"):
        ManifestCommit(plain, FOLDER, snapshot("own")).run(table(OWN))
    assert next(numbers) == module._ATTEMPTS
    assert contents(plain) == applied(OTHER)
    assert nothing_left(plain)
