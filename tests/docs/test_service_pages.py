"""Pages of managed services: their lines install what exists, beside releases that are tested."""

from __future__ import annotations

import re
import shlex
import tomllib
from itertools import pairwise
from typing import Final

import pytest
from packaging.requirements import Requirement
from tests.docs.pages import REPOSITORY, Page
from tests.matrix.beside import EDITS, PYTHON
from tests.matrix.lines import LINES

NAMES: Final = (
    "mwaa",
    "cloud-composer",
    "astronomer",
    "dagster-plus",
    "orchestrators-on-kubernetes",
    "laptop",
)
PAGES: Final = [pytest.param(Page(f"docs/how-to/{name}.md"), id=name) for name in NAMES]
MWAA: Final = Page("docs/how-to/mwaa.md")
PROJECT: Final = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
RELEASES: Final = {release for line in LINES for release in line.beside}
#: One screen.
MOST_LINES: Final = 65


def words_of(page: Page) -> list[str]:
    """What the page has pip install and be held to, in requirements files, images and shells."""
    texts = [
        text for name in ("requirements", "dockerfile", "install") for text in page.tested(name)
    ]
    lines = [line for text in texts for line in text.replace("\\\n", " ").splitlines()]
    return [word for line in lines for word in shlex.split(line)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_on_a_screen_and_says_what_does_not_work(page: Page) -> None:
    assert len(page.text.splitlines()) <= MOST_LINES
    for title in ("Install", "Credentials", "Network", "What does not work"):
        assert f"\n## {title}\n" in page.text


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_installs_exists(page: Page) -> None:
    """With this release and its extras, which the matrix installs beside each named Airflow."""
    words = words_of(page)
    found = [Requirement(word) for word in words if word.startswith(f"{PROJECT['name']}[")]
    found += [
        Requirement(f"{PROJECT['name']}{word[1:]}") for word in words if word.startswith(".[")
    ]
    assert found
    for need in found:
        assert need.extras <= PROJECT["optional-dependencies"].keys()
        assert need.specifier.contains(PROJECT["version"])
    for word in words:
        for release, python in re.findall(r"/constraints-([\d.]+)/constraints-([\d.]+)\.txt", word):
            assert release in RELEASES - EDITS.keys()
            assert python == PYTHON
        for release in re.findall(r"^apache-airflow==(\d[\d.]*)$|airflow:([\d.]+)-", word):
            assert set(filter(None, release)) <= RELEASES
    for option, value in pairwise(words):
        if option == "-c":
            assert (REPOSITORY / value).is_file()


def test_the_lines_to_edit_are_those_that_the_matrix_edits() -> None:
    (text,) = MWAA.tested("edits")
    assert {tuple(text.split())} == set(EDITS.values())
    for release in EDITS:
        assert release in MWAA.prose
    for release in RELEASES - EDITS.keys() - {"3.1.6"}:  # MWAA has no 3.1.
        assert release in MWAA.prose
