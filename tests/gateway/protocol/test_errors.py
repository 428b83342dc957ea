"""Errors of the protocol."""

from __future__ import annotations

import pytest

from skyplane_gateway.common.errors import GatewayError, from_dict
from skyplane_gateway.protocol import (
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    WireVersionMismatch,
)


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
