"""The gateway's package as a ZIP archive, from the files that are installed here.

Gateways of a fleet need the version of their orchestrator, which may be an editable install. The
library itself stays with the orchestrator.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

_PACKAGE: Final = "skyplane_gateway"


@cache
def gateway_archive() -> bytes:
    """An archive from which Python imports the gateway."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in _sources(files(_PACKAGE), _PACKAGE):
            archive.writestr(path, data)
    return buffer.getvalue()


@cache
def gateway_requirements() -> str:
    """The pinned requirements of the gateway, a requirements file."""
    return files(_PACKAGE).joinpath("requirements.lock").read_text(encoding="utf-8")


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, name)
        elif entry.name.endswith((".py", ".lock", "py.typed")):
            yield name, entry.read_bytes()
