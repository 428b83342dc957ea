from __future__ import annotations

from typing import Any

import pytest

from skyplane_gateway.common.errors import NotAuthorised
from skyplane_gateway.common.identifiers import gateway_uri, orchestrator_uri
from skyplane_gateway.control.caller import Caller, caller_of

KEY, OTHER = "ab" * 16, "cd" * 16


def certificate(*names: tuple[str, str]) -> dict[str, Any]:
    return {"subjectAltName": names}


def test_the_orchestrator_and_a_gateway() -> None:
    assert caller_of(certificate(("URI", orchestrator_uri(KEY))), KEY).is_orchestrator
    caller = caller_of(certificate(("URI", gateway_uri(KEY, "aws:us-east-1/0"))), KEY)
    assert caller == Caller(node="aws:us-east-1/0")
    assert not caller.is_orchestrator


@pytest.mark.parametrize(
    "shown",
    [
        None,
        {},
        certificate(),
        certificate(("URI", orchestrator_uri(OTHER))),
        certificate(("URI", gateway_uri(OTHER, "a"))),
        # A gateway without a name is not the orchestrator.
        certificate(("URI", gateway_uri(KEY, ""))),
        certificate(("DNS", orchestrator_uri(KEY))),
        certificate(("URI", orchestrator_uri(KEY) + "/x")),
    ],
)
def test_nobody_else(shown: dict[str, Any] | None) -> None:
    with pytest.raises(NotAuthorised):
        caller_of(shown, KEY)
