"""Files that commands read and write: plans, fleets, resume handles, pictures."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyplane_gateway.common.schema import MAX_DOCUMENT_BYTES, parsed
from skyplane_orchestration.errors import ConfigurationInvalid

if TYPE_CHECKING:
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.model.result import TransferResult


def read_plan(source: str) -> TransferPlan:
    """The plan in a file, or on stdin for `-`. Raises ConfigurationInvalid."""
    from skyplane_orchestration.model.plan import TransferPlan

    return TransferPlan.from_dict(_read_object(source, "plan"))


def read_fleet(source: str) -> Fleet:
    """The fleet document in a file, or on stdin for `-`. Raises ConfigurationInvalid."""
    from skyplane_orchestration.model.fleet import Fleet

    return Fleet.from_dict(_read_object(source, "fleet"))


def read_result(source: str) -> TransferResult:
    """The result in a file, also in the output of a failure, or on stdin for `-`.

    Raises ConfigurationInvalid.
    """
    from skyplane_orchestration.model.result import TransferResult

    document = _read_object(source, "result")
    return TransferResult.from_dict(document.get("result", document))


def read_text(source: str, what: str) -> str:
    """The text of a file, or of stdin for `-`. Raises ConfigurationInvalid."""
    most = MAX_DOCUMENT_BYTES + 1
    try:
        if source == "-":
            return sys.stdin.read(most)
        with Path(source).open(encoding="utf-8") as file:
            return file.read(most)
    except OSError as error:
        raise ConfigurationInvalid(
            f"the {what} {source!r} cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationInvalid(f"the {what} {source!r} is not text") from error


def _read_object(source: str, what: str) -> dict[str, Any]:
    document = parsed(read_text(source, what), f"the {what} {source!r}")
    if not isinstance(document, dict):
        raise ConfigurationInvalid(f"the {what} {source!r} is not a JSON object")
    return document


def write_picture(path: str, svg: str) -> None:
    """Write an SVG file. Raises ConfigurationInvalid."""
    try:
        Path(path).write_text(svg, encoding="utf-8")
    except OSError as error:
        raise ConfigurationInvalid(f"{path!r} cannot be written: {error.strerror}") from error


def require_writable(path: str) -> None:
    """Check that a file can be written later. Raises ConfigurationInvalid."""
    directory = Path(path).parent
    if Path(path).is_dir() or not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigurationInvalid(f"{path!r} cannot be written: check its directory")
