"""The pages of the repository: their headings, links and code blocks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from docs.generated import on_page_markdown
from markdown.extensions.toc import slugify

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_FENCED: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE
)
_INDENTED: Final = re.compile(r"(?:\A|\n\n)((?:    .*\n)+)")
_LINK: Final = re.compile(r"(?P<image>!?)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_SAVED: Final = re.compile(r"Save this as `([^`]+)`")
_TESTED: Final = re.compile(r"<!-- test: (?P<name>\w+) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    """A code block; `test` names the test that runs it, if one does.

    `saved_as` is the name of the file that the page makes of it.
    """

    language: str
    text: str
    test: str = ""
    saved_as: str = ""


@dataclass(frozen=True)
class Page:
    """A Markdown file, by its path in the repository, with its generated parts."""

    path: str

    @property
    def text(self) -> str:
        return _text(self.path)

    @property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCED.sub("", self.text)

    def blocks(self) -> Iterator[Block]:
        """Fenced blocks in their order, then indented ones, which have no language."""
        end = 0
        for match in _FENCED.finditer(self.text):
            tested = _TESTED.search(self.text, 0, match.start())
            name = tested["name"] if tested else ""
            saved = _SAVED.findall(self.text, end, match.start())
            end = match.end()
            text = textwrap.dedent(match["text"])
            yield Block(match["language"], text, name, saved[-1] if saved else "")
        for text in _INDENTED.findall(self.prose):
            yield Block("", textwrap.dedent(text))

    def tested(self, name: str) -> list[str]:
        """Texts of the blocks that carry the comment `<!-- test: NAME -->`."""
        return [block.text for block in self.blocks() if block.test == name]

    def links(self) -> Iterator[str]:
        """Targets of links and images inside the repository."""
        for match in _LINK.finditer(self.prose):
            if not match["target"].startswith(("http://", "https://", "mailto:")):
                yield match["target"]

    def anchors(self) -> set[str]:
        titles = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in self._titles())
        return {slugify(title.replace("`", ""), "-") for title in titles}

    def _titles(self) -> list[str]:
        return _HEADING.findall(self.prose)


@cache
def _text(path: str) -> str:
    return on_page_markdown((REPOSITORY / path).read_text(encoding="utf-8"))


def all_pages() -> list[Page]:
    """Every page of the documentation, and those that lie beside the code."""
    beside = (
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "gateway/README.md",
        "tests/strict_clouds/README.md",
    )
    shelves = sorted((REPOSITORY / "docs").rglob("*.md"))
    return [Page(path) for path in (*beside, *(str(p.relative_to(REPOSITORY)) for p in shelves))]
