"""Screenshots by a headless Chromium."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images" / "screenshots"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
#: Time that a page has to ask for its data, on the page's own clock.
_BUDGET_MS: Final = 20_000
#: Colours of an image; pages have few, and the files stay small.
_COLOURS: Final = 64


class NoBrowser(Exception):
    """No browser is on this machine."""


def browser() -> str:
    """Raises NoBrowser, with the package to install."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    raise NoBrowser("no Chromium is on the PATH; Debian has it in the package chromium")


def take(url: str, name: str, size: tuple[int, int] = (1360, 760)) -> Path:
    """Write `docs/images/screenshots/NAME.png`, and return its path."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    image = IMAGES / f"{name}.png"
    with tempfile.TemporaryDirectory(prefix="browser-") as profile:
        subprocess.run(
            [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}",
             f"--virtual-time-budget={_BUDGET_MS}", f"--screenshot={image}", url],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
    with Image.open(image) as picture:
        small = picture.convert("RGB").quantize(_COLOURS)
    small.save(image, optimize=True)
    print(f"{image.name}: {image.stat().st_size // 1000} kB", flush=True)
    return image
