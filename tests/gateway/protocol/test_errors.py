"""Errors of the protocol."""

from __future__ import annotations

import pytest

from skyplane_gateway.common.errors import from_dict
from skyplane_gateway.protocol.errors import (
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    WireVersionMismatch,
)


@pytest.mark.parametrize(
    "error", [LocalProtocolError("x"), RemoteProtocolError("y"), WireVersionMismatch("z")]
)
def test_errors_cross_processes(error: ProtocolError) -> None:
    again = from_dict(error.to_dict())
    assert type(again) is type(error)
    assert again.to_dict() == error.to_dict()
