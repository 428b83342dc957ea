"""The table of docs/reference/filters.md: every row chooses what it says, here and in rclone."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest
from tests.docs.pages import Page
from tests.faults.go_programs import Unavailable
from tests.faults.tools import RCLONE

from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.job_from_options import job_from
from skyplane_orchestration.cli.option_parser import Parser
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.preflight import previewed

PAGE: Final = Page("docs/reference/filters.md")
SIZES: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "B": 1}
AGES_S: Final = {"day": 86_400, "hour": 3600}


def rows(header: str) -> list[list[str]]:
    """The cells of the table with this first line."""
    lines = PAGE.text.split(header, 1)[1].splitlines()[2:]
    table = lines[: lines.index("")] if "" in lines else lines
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for cell, size, age in rows("| key | size | modified |"):
        path = folder / codes(cell)[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        number, unit = size.split()
        path.touch()
        os.truncate(path, int(number) * SIZES[unit])
        count, unit, _ = age.split()
        modified = time.time() - int(count) * AGES_S[unit.removesuffix("s")]
        os.utime(path, (modified, modified))
    return folder


EXAMPLES: Final = [(codes(a)[0], codes(b)[0], codes(c)) for a, b, c in rows("| here | rclone |")]


@pytest.mark.parametrize(("here", "rclone", "copies"), EXAMPLES)
def test_each_example_copies_what_it_says(
    tree: Path, tmp_path: Path, here: str, rclone: str, copies: list[str]
) -> None:
    parser = Parser(prog="x")
    arguments.add_ends(parser, "a place")
    arguments.add_selection(parser)
    options = parser.parse_args(["-r", f"{tree}/", f"{tmp_path}/", *shlex.split(here)])
    chosen = previewed(job_from(options), CredentialSources(is_ambient_allowed=False))
    assert [f"/{row.source.key}" for row in chosen] == [f"{tree}/{key}" for key in copies]


@pytest.fixture(scope="module")
def rclone_program() -> str:
    try:
        return str(RCLONE.binary())
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("here", "rclone", "copies"), EXAMPLES)
def test_rclone_copies_the_same(
    rclone_program: str, tree: Path, here: str, rclone: str, copies: list[str]
) -> None:
    command = [rclone_program, "lsf", "-R", "--files-only", *shlex.split(rclone), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.split()) == copies


#: Number in the page -> key.
KEYS: Final = {number: codes(cell)[0] for number, cell in rows("| number | key |")}
GLOBS: Final = [
    (*re.findall(r"`(.+)`", glob), here, rclone)
    for glob, here, rclone in rows("| pattern | here | rclone |")
]


def keys_of(cell: str) -> list[str]:
    numbers = {"all": list(KEYS), "none": []}.get(cell, cell.split())
    return sorted(KEYS[number] for number in numbers)


def test_the_page_compares_forty_globs_and_more() -> None:
    assert len({glob for glob, _, _ in GLOBS}) >= 40
    assert 10 < sum(rclone == "the same" for _, _, rclone in GLOBS) < len(GLOBS)
    assert not [glob for glob, here, rclone in GLOBS if here == rclone]


@pytest.mark.parametrize(("glob", "here", "rclone"), GLOBS)
def test_each_glob_leaves_out_what_it_says(glob: str, here: str, rclone: str) -> None:
    found = {}
    for kind in ("include", "exclude"):
        rule = SelectionRule("", "", **{kind: (glob,)})  # type: ignore[arg-type]
        found[kind] = sorted(key for key in KEYS.values() if rule.matches(key))
    assert found["include"] == keys_of(here)
    assert found["exclude"] == sorted(set(KEYS.values()) - set(keys_of(here)))


@pytest.fixture(scope="module")
def globbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("globbed")
    for key in KEYS.values():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).touch()
    return folder


@pytest.mark.parametrize(("glob", "here", "rclone"), GLOBS)
def test_rclone_leaves_out_what_it_says(
    rclone_program: str, globbed: Path, glob: str, here: str, rclone: str
) -> None:
    command = [rclone_program, "lsf", "-R", "--files-only", f"--exclude={glob}", str(globbed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    left_out = sorted(set(KEYS.values()) - set(done.stdout.splitlines()))
    assert left_out == keys_of(here if rclone == "the same" else rclone)
