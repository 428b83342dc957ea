"""Parts of an HTML page. Every text is escaped here, unless it is `Html` already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1d2733; background: #fff;
       max-width: 62rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: .6rem 0; }
th, td { border: 1px solid #d5dce4; padding: .25rem .6rem; text-align: left;
         vertical-align: top; overflow-wrap: anywhere; }
th { background: #f2f5f8; font-weight: 600; white-space: nowrap; }
pre { background: #f2f5f8; padding: .8rem; overflow: auto; }
svg { max-width: 100%; height: auto; }
"""

#: HTTP headers of a page. Even if a text were not escaped, no script could run.
PAGE_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def link(url: str, words: str) -> Html:
    """A link; only the words, if the URL is not one of http or https."""
    if not url.startswith(("https://", "http://")):
        return Html(escape(words))
    return Html(f'<a href="{escape(url)}" rel="noreferrer">{escape(words)}</a>')


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """A table with a head; nothing without rows."""
    body = [_row("td", row) for row in rows]
    return _element("table", [_row("th", head), *body]) if body else Html("")


def facts(values: Mapping[str, object]) -> Html:
    """A table of names and values. Values that are None or an empty text are left out."""
    rows = [
        _element("tr", [_element("th", [name]), _element("td", [value])])
        for name, value in values.items()
        if value is not None and value != ""
    ]
    return _element("table", rows)


def bullets(lines: Iterable[str]) -> Html:
    return _element("ul", [_element("li", [line]) for line in lines])


def preformatted(words: str) -> Html:
    return _element("pre", [words])


def paragraph(words: str) -> Html:
    return _element("p", [words])


def section(anchor: str, title: str, *parts: Html) -> Html:
    """A part of a page that `#anchor` leads to."""
    return _element("section", [_element("h2", [title]), *parts], f' id="{escape(anchor)}"')


def page(title: str, *parts: Html) -> str:
    """A whole document."""
    head = [
        Html('<meta charset="utf-8">'),
        _element("title", [title]),
        _element("style", [Html(_STYLE)]),
    ]
    body = [_element("h1", [title]), *parts]
    whole = _element("html", [_element("head", head), _element("body", body)], ' lang="en"')
    return f"<!DOCTYPE html>{whole}"


def _row(tag: str, cells: Sequence[object]) -> Html:
    return _element("tr", [_element(tag, [cell]) for cell in cells])


def _element(tag: str, content: Iterable[object], attributes: str = "") -> Html:
    inner = "".join(part if isinstance(part, Html) else escape(str(part)) for part in content)
    return Html(f"<{tag}{attributes}>{inner}</{tag}>")
