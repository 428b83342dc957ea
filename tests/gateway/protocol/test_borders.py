"""The imports of the protocol: no socket, no clock, no event loop."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import skyplane_gateway.common.errors
import skyplane_gateway.protocol
from skyplane_gateway.common.errors import GatewayError, from_dict
from skyplane_gateway.protocol import (
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    WireVersionMismatch,
)

FOLDER = Path(skyplane_gateway.protocol.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))
assert len(MODULES) > 10
#: All modules outside the package that it may import.
ALLOWED = {
    "__future__",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "hmac",
    "itertools",
    "struct",
    "typing",
    "cryptography.exceptions",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.hashes",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "skyplane_gateway.common.buffers",
    "skyplane_gateway.common.checksum",
    "skyplane_gateway.common.errors",
    "skyplane_gateway.common.objects",
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            names.add(node.module or "")
    return {name for name in names if not name.startswith("skyplane_gateway.protocol")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_protocol_imports_neither_io_nor_time(path: Path) -> None:
    assert imported(path) <= ALLOWED


def test_every_public_name_exists_once() -> None:
    names = skyplane_gateway.protocol.__all__
    assert len(names) == len(set(names))
    for name in names:
        assert hasattr(skyplane_gateway.protocol, name)


def test_protocol_error_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        ProtocolError("which side?")
    assert issubclass(ProtocolError, GatewayError)


@pytest.mark.parametrize(
    "error", [LocalProtocolError("x"), RemoteProtocolError("y"), WireVersionMismatch.of(1, 2)]
)
def test_errors_cross_processes(error: ProtocolError) -> None:
    again = from_dict(error.to_dict())
    assert type(again) is type(error)
    assert again.to_dict() == error.to_dict()
