"""The wheel of this project, built again from the files that are installed here.

Gateways of a fleet need the version of their orchestrator, which may be an editable install.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

_DISTRIBUTION: Final = "skyplane-orchestration"
#: What an instance runs. The library itself stays with the orchestrator.
_PACKAGE: Final = "skyplane_gateway"
_REQUIREMENTS: Final = "requirements.lock"
#: The oldest time that a ZIP archive can hold: the same content gives the same bytes.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_WHEEL: Final = (
    "Wheel-Version: 1.0\nGenerator: skyplane\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
)
_SCRIPTS: Final = "[console_scripts]\nskyplane-gateway = skyplane_gateway.main:entry_point\n"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel with the gateway."""

    name: str
    content: bytes


@cache
def own_wheel() -> Wheel:
    """The wheel of the gateway that is installed here; the same bytes each time."""
    version = distribution(_DISTRIBUTION).version
    stem = f"{_DISTRIBUTION.replace('-', '_')}-{version}"
    entries = dict(_sources(files(_PACKAGE), _PACKAGE))
    metadata = f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: {version}\n"
    for name, text in (("METADATA", metadata), ("WHEEL", _WHEEL), ("entry_points.txt", _SCRIPTS)):
        entries[f"{stem}.dist-info/{name}"] = text.encode()
    record = f"{stem}.dist-info/RECORD"
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in entries.items()]
    entries[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in entries.items():
            info = zipfile.ZipInfo(path, _TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return Wheel(f"{stem}-py3-none-any.whl", buffer.getvalue())


@cache
def gateway_requirements() -> str:
    """The pinned requirements of the gateway, a requirements file."""
    return files(_PACKAGE).joinpath(_REQUIREMENTS).read_text(encoding="utf-8")


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, name)
        elif entry.name.endswith((".py", ".lock", "py.typed")):
            yield name, entry.read_bytes()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
