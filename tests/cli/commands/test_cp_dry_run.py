"""`cp --dry-run`: the same answer for few and for many objects, in memory that does not grow."""

from __future__ import annotations

import json
import pathlib
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.cli.main import main

COUNTS = ("objects", "bytes", "copy", "copy_bytes", "skip", "refuse", "missing")


def tree(root: Path, *names: str) -> str:
    root.mkdir()
    for name in names:
        (root / name).write_text(name)
    return f"{root}/"


@pytest.mark.parametrize("names", [(), ("one",), ("one", "two \u00e9", "three")])
def test_the_object_is_that_of_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...]
) -> None:
    src, dst = tree(tmp_path / "in", *names), tree(tmp_path / "out", "one", "extra")
    command = ["sync", "--delete", "--allow-empty", src, dst, "--dry-run", "--json"]
    assert main(command) == 0
    text = capsys.readouterr().out
    document: dict[str, Any] = json.loads(text)
    assert json.dumps(document, indent=2) + "\n" == text
    rows, summary = document["objects"], document["summary"]
    assert [row["action"] for row in rows if row["source"]] == ["copy"] * len(names)
    assert summary["objects"] == summary["copy"] == len(names)
    assert summary["bytes"] == sum(row["bytes"] for row in rows if row["source"])
    assert summary["delete"] == len(rows) - len(names)
    assert set(COUNTS) < summary.keys()


@pytest.mark.long
def test_the_memory_does_not_grow_with_the_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    src, dst = tree(tmp_path / "in"), tree(tmp_path / "out")
    monkeypatch.setattr(LocalStore, "check", lambda *_: None)
    written = 0

    class Sink:
        def write(self, text: str) -> int:
            nonlocal written
            written += text.count('"action"')
            return len(text)

        def flush(self) -> None: ...

        def isatty(self) -> bool:
            return False

    def held_at_the_end_of(objects: int) -> int:
        held = 0

        def listed(self: LocalStore, prefix: str, **_: Any) -> Iterator[ObjectInfo]:
            nonlocal held
            count = 0 if str(self._root).endswith("out") else objects
            for number in range(count):
                yield ObjectInfo(f"{prefix}{number:08d}", 1, f"{number}-1-1", 0.0)
            if count:
                # What pathlib allocates is Python's table of names, which doubles at times.
                others = tracemalloc.Filter(inclusive=False, filename_pattern=pathlib.__file__)
                found = tracemalloc.take_snapshot().filter_traces([others])
                held = sum(trace.size for trace in found.traces)

        monkeypatch.setattr(LocalStore, "list", listed)
        assert main(["cp", "-r", src, dst, "--dry-run", "--json"]) == 0
        return held

    monkeypatch.setattr(sys, "stdout", Sink())
    main(["cp", "-r", src, dst, "--dry-run", "--json", "--allow-empty"])
    written = 0
    tracemalloc.start()
    try:
        few, many = held_at_the_end_of(1_000), held_at_the_end_of(9_000)
    finally:
        tracemalloc.stop()
    assert written == 10_000
    # Rows held would take 4 MB and more.
    assert many - few < 1_000_000
