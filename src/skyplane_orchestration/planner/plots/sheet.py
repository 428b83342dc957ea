"""A sheet to draw on with matplotlib. The same drawing gives the same SVG document."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Size of the sheet, and height of its two title lines, in points.
WIDTH, HEIGHT, HEADER = 720.0, 405.0, 42.0
#: Text stays text, and a dollar sign starts no formula.
_STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "skyplane_orchestration",
    "text.parse_math": False,
    "font.size": 9,
}


def require_matplotlib() -> None:
    """Raise MissingExtra if matplotlib is not installed. Does not import it."""
    if find_spec("matplotlib") is None:
        raise MissingExtra.of("a picture", "plots")


def svg_document(title: str, facts: str, draw: Callable[[Figure], None]) -> str:
    """Two title lines, and below them what `draw` adds. Raises MissingExtra."""
    require_matplotlib()
    # Imported here: only a picture needs them, and they are slow to load.
    from matplotlib import style
    from matplotlib.figure import Figure

    # With the default style, no setting of this machine changes the picture.
    with style.context(["default", _STYLE]):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        figure.text(15 / WIDTH, 1 - 20 / HEIGHT, title, fontsize=13, fontweight="bold")
        figure.text(15 / WIDTH, 1 - 36 / HEIGHT, facts)
        draw(figure)
        document = StringIO()
        metadata = {"Title": title, "Date": None, "Creator": None}
        figure.savefig(document, format="svg", metadata=metadata)
    return document.getvalue()
