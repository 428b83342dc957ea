"""The table of ArtiV's benchmark: `sync` beside rclone, the AWS CLI and DVC.

10 objects of 100 MB and 1,000 of 1 KB go up and down, each twice (`-first`, `-second`). Then each
tool only says what it would copy: of 50,000 files to an empty place, and of 500 and one to a place
with the 50,000. Files are in memory, as the server's are.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.contest import Contest, Round, cases_of, medians
from bench.peers import aws_binary, dvc_binary
from bench.places import TARGET, Places, open_places
from bench.report import Case

ARTIV: Final = "artiv"
OWN, RCLONE, NO_TRAVERSE, AWS, DVC = "sync", "rclone", "rclone --no-traverse", "aws", "dvc"
TRUSTING: Final = f"{OWN} --trust-manifest"
TRUST_OPTIONS: Final = ("--trust-manifest",)
#: Name -> files, and bytes of each.
COPIES: Final = {"large": (10, 100_000_000), "small": (1000, 1000)}
#: Files here, and objects there.
DIFFERENCES: Final = ((50_000, 0), (500, 50_000), (1, 50_000))
SMOKE_COPIES: Final = {"large": (2, 9_000_000), "small": (10, 1000)}
SMOKE_DIFFERENCES: Final = ((20, 0), (5, 20), (1, 20))
SIZE_BYTES: Final = 1000

#: Of a round, by the name of a row without `artiv-`.
Rows = dict[str, Round]


@dataclass(frozen=True, slots=True)
class Tool:
    """Commands between `data` and a key of the target.

    Attributes:
        before: runs before the others, not timed.
        differ: says what `up` would copy.
        local: folders that a first download finds missing.
    """

    up: Sequence[str]
    down: Sequence[str]
    differ: Mapping[str, Sequence[str]]
    local: Sequence[Path]
    before: Sequence[Sequence[str]] = ()


def write_files(folder: Path, files: int, size_bytes: int) -> None:
    """Files of an hour ago; every body differs from the others."""
    folder.mkdir(parents=True)
    written_s = time.time() - 3600
    random_bytes = random.Random(1).randbytes
    for number in range(files):
        path = folder / f"{number:05d}"
        path.write_bytes(random_bytes(size_bytes))
        os.utime(path, (written_s, written_s))


class Programs:
    """Our command and the peers that are here, with files of the folder `data` of `places`."""

    def __init__(self, places: Places, peers: Mapping[str, str | None]) -> None:
        self._places = places
        self._peers = {name: path for name, path in peers.items() if path is not None}
        self._root = places.folder / "files"
        self.data = self._root / "data"
        self._down = places.folder / "down"

    def tools(self, key: str) -> dict[str, Tool]:
        """By their names; DVC, which replaces the files, comes last."""
        url, endpoint = f"{self._places.urls[1]}/{key}", self._places.endpoints[1]
        own = [sys.executable, "-m", "skyplane_orchestration.cli", "sync", "-q"]
        up = [*own, f"{self.data}/", f"{url}/", "--dst-endpoint", endpoint]
        down = [*own, f"{url}/", f"{self._down}/", "--src-endpoint", endpoint]
        shown = [*up, "--dry-run"]
        differ = {OWN: shown, TRUSTING: [*shown, *TRUST_OPTIONS]}
        tools = {OWN: Tool(up, down, differ, [self._down])}
        if rclone := self._peers.get(RCLONE):
            copy = [rclone, "copy", "--s3-no-check-bucket"]
            far = f"far:{TARGET}/{key}"
            up = [*copy, str(self.data), far]
            shown = [*up, "--dry-run"]
            differ = {RCLONE: shown, NO_TRAVERSE: [*shown, "--no-traverse"]}
            tools[RCLONE] = Tool(up, [*copy, far, str(self._down)], differ, [self._down])
        if aws := self._peers.get(AWS):
            sync = [aws, "--endpoint-url", endpoint, "s3", "sync", "--only-show-errors"]
            up = [*sync, str(self.data), url]
            differ = {AWS: [*up, "--dryrun"]}
            tools[AWS] = Tool(up, [*sync, url, str(self._down)], differ, [self._down])
        if dvc := self._peers.get(DVC):
            tools[DVC] = self._dvc([dvc, "--cd", str(self._root)], url, endpoint)
        return tools

    def _dvc(self, dvc: list[str], url: str, endpoint: str) -> Tool:
        settings = self._root / ".dvc" / "config"
        settings.parent.mkdir(parents=True, exist_ok=True)
        # Its notes about what a remote holds would be of the removed one, were the URL the same.
        settings.write_text(
            "[core]\nremote = s3\nno_scm = true\nanalytics = false\n"
            f"site_cache_dir = {self._places.folder}/dvc\n"
            f"['remote \"s3\"']\nurl = {url}-dvc\nendpointurl = {endpoint}\n"
        )
        cached = settings.parent / "cache"
        differ = {DVC: [*dvc, "status", "--cloud"]}
        before = [[*dvc, "add", "--quiet", self.data.name]]
        return Tool([*dvc, "push", "-q"], [*dvc, "pull", "-q"], differ, [self.data, cached], before)

    def fill(self, files: int, size_bytes: int) -> None:
        """Other files than before."""
        self.clear(self._root)
        write_files(self.data, files, size_bytes)

    def copy_rounds(self, label: str, rounds: int) -> Iterator[Rows]:
        for number in range(rounds):
            rows: Rows = defaultdict(Round)
            for name, tool in self.tools(f"{label}-{number}").items():
                for command in tool.before:
                    self._places.seconds(command)
                for turn in ("first", "second"):
                    row = rows[f"{label}-up-{turn}"]
                    row.timed(name, map(self._places.seconds, [tool.up]))
                self.clear(*tool.local)
                for turn in ("first", "second"):
                    row = rows[f"{label}-down-{turn}"]
                    row.timed(name, map(self._places.seconds, [tool.down]))
                self.clear(self._down, *(self._places.folder / TARGET / TARGET).glob(f"{label}*"))
            yield rows

    def difference_rounds(self, rounds: int, here: int, there: int) -> Iterator[Rows]:
        """Removes all files but `here`, which are spread evenly over the keys."""
        paths = sorted(self.data.iterdir())
        step = len(paths) // here
        for path in set(paths).difference(paths[step // 2 :: step]):
            path.unlink()
        tools = self.tools("tree" if there else "empty")
        for command in (command for tool in tools.values() for command in tool.before):
            self._places.seconds(command)
        for _ in range(rounds):
            row = Round()
            for tool in tools.values():
                for name, command in tool.differ.items():
                    if there or name != TRUSTING:  # An empty place has no manifest.
                        row.timed(name, map(self._places.seconds, [command]))
            yield {f"differ-{here}-{there}": row}

    def fill_target(self) -> None:
        """All files to where the differences are measured: ours, and DVC's as it would."""
        tools = self.tools("tree")
        self._places.seconds(tools[OWN].up)
        if DVC in tools:
            own = [sys.executable, "-m", "skyplane_orchestration.cli", "cp", "-q", "-r"]
            own += [f"{self._root}/.dvc/cache/", f"{self._places.urls[1]}/tree-dvc/"]
            self._places.seconds([*own, "--dst-endpoint", self._places.endpoints[1]])

    def clear(self, *folders: Path) -> None:
        for folder in folders:
            if folder.exists():
                shutil.rmtree(folder)


def cases_of_rows(rounds: Sequence[Rows]) -> list[Case]:
    """One case for each row, beside rclone; then the worst ones, if there is a peer.

    Second runs have a floor. The goal is to be the fastest of all in them and in differences.
    """
    cases: list[Case] = []
    against_rclone, against_all = [], []
    for label in rounds[0]:
        of_row = [rows[label] for rows in rounds if label in rows]
        is_second = label.endswith("-second")
        contest = Contest(f"{ARTIV}-{label}", OWN, RCLONE, 1.0 if is_second else None, None)
        seconds = medians(of_row[0].seconds, [row.seconds for row in of_row])
        cpu_s = medians(seconds, [row.server_cpu_s for row in of_row])
        for case in cases_of([contest], of_row):
            cases.append(replace(case, seconds=seconds, server_cpu_s=cpu_s))
            if is_second:
                against_rclone.append(case.value)
        ours = [value for name, value in seconds.items() if name.startswith(OWN)]
        others = [value for name, value in seconds.items() if not name.startswith(OWN)]
        if others and not label.endswith("-first"):
            against_all.append(min(ours) / min(others))
    if against_rclone:
        cases.append(Case(ARTIV, max(against_rclone), "x time", against=RCLONE, floor=1.0))
    if against_all:
        named = f"{ARTIV}-fastest"
        cases.append(Case(named, max(against_all), "x time", against="the fastest", goal=1.0))
    return cases


def artiv_cases(rounds: int, rclone: str | None, *, is_smoke: bool) -> list[Case]:
    copies = SMOKE_COPIES if is_smoke else COPIES
    differences = SMOKE_DIFFERENCES if is_smoke else DIFFERENCES
    merged: list[Rows] = [{} for _ in range(rounds)]

    def add(made: Iterator[Rows]) -> None:
        for rows, more in zip(merged, made, strict=True):
            rows.update(more)

    with open_places("s3") as places:
        programs = Programs(places, {RCLONE: rclone, AWS: aws_binary(), DVC: dvc_binary()})
        for label, (files, size_bytes) in copies.items():
            programs.fill(files, size_bytes)
            add(programs.copy_rounds(label, rounds))
        programs.fill(differences[0][0], SIZE_BYTES)
        to_empty, *others = differences
        add(programs.difference_rounds(rounds, *to_empty))
        programs.fill_target()
        for here, there in others:
            add(programs.difference_rounds(rounds, here, there))
    return cases_of_rows(merged)
