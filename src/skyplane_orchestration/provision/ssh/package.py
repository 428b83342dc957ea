"""The gateway's package as one file, which Python can import from."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

_PACKAGE: Final = "skyplane_gateway"
_REQUIREMENTS: Final = "requirements.lock"
#: The oldest time that a ZIP archive can hold: the same content gives the same bytes.
_TIME: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class GatewayPackage:
    """A ZIP archive of `skyplane_gateway`; its name tells the content."""

    name: str
    content: bytes


@cache
def gateway_package() -> GatewayPackage:
    """The package that is installed here: gateways of one fleet need the same version."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, files(_PACKAGE), _PACKAGE)
    content = buffer.getvalue()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return GatewayPackage(f"{_PACKAGE}-{digest}.zip", content)


@cache
def gateway_requirements() -> str:
    """The pinned requirements of that package, a requirements file."""
    return files(_PACKAGE).joinpath(_REQUIREMENTS).read_text(encoding="utf-8")


def _add(archive: zipfile.ZipFile, folder: Traversable, path: str) -> None:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        place = f"{path}/{entry.name}"
        if entry.is_dir():
            _add(archive, entry, place)
        elif entry.name.endswith(".py"):
            info = zipfile.ZipInfo(place, _TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, entry.read_bytes())
