"""Every link of a page leads somewhere: the file is there, and so is the heading."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path, PurePosixPath
from typing import Final

import pytest
import yaml
from tests.docs.pages import REPOSITORY, Page, all_pages

PAGES: Final = all_pages()

#: Anchors that mkdocstrings makes; `make docs` checks links to them.
_OF_A_NAME: Final = "skyplane_"
#: Files that a reader makes.
_EXAMPLES: Final = frozenset(
    {
        "definitions.py",
        "defs/skyplane.py",
        "events_to_ireland.py",
        "make_fleet.py",
        "orders_to_paris.py",
    }
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_links_lead_somewhere(page: Page) -> None:
    broken = [target for target in page.links() if not _is_there(page, target)]
    assert broken == []


def _is_there(page: Page, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (REPOSITORY / page.path).parent / path if path else REPOSITORY / page.path
    if not file.is_file():
        return False
    if not anchor or anchor.startswith(_OF_A_NAME):
        return True
    return anchor in Page(str(file.resolve().relative_to(REPOSITORY))).anchors()


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.path != "CHANGELOG.md"],  # It names files of earlier releases.
    ids=lambda page: page.path,
)
def test_python_files_and_modules_that_a_page_names_exist(page: Page) -> None:
    named = set(re.findall(r"`([\w/]+\.py)(?:::\w+)?`", page.prose))
    assert [name for name in named if name not in _EXAMPLES and not _is_a_file(name)] == []
    dotted = set(re.findall(r"`((?:skyplane_\w+|bench)(?:\.\w+)+)", page.prose))
    assert [name for name in dotted if not _is_a_name(name)] == []


def _is_a_file(name: str) -> bool:
    """True for the end of the path of a file; words in capitals stand for a name."""
    pattern = re.sub(r"[A-Z]{2,}", "*", name)
    roots = ("src", "gateway", "grids", "bench", "tests", "docs", "example_dags")
    return (REPOSITORY / name).is_file() or any(
        PurePosixPath(file.as_posix()).match(pattern)
        for root in roots
        for file in (REPOSITORY / root).rglob(PurePosixPath(pattern).name)
    )


def _is_a_name(dotted: str) -> bool:
    """True for a module, and for a name in one."""
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


def test_the_site_lists_every_page() -> None:
    navigation = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())["nav"]
    listed = set(re.findall(r"[\w/-]+\.md", str(navigation)))
    docs = REPOSITORY / "docs"
    assert listed == {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}


def test_every_picture_is_shown_somewhere() -> None:
    shown = {Path(target).name for page in PAGES for target in page.links()}
    assert {path.name for path in (REPOSITORY / "docs" / "images").rglob("*.svg")} <= shown
