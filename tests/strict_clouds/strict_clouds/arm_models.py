"""Requests and answers of the strict Resource Manager against the models of Azure's SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strict_clouds.arm_wire import Reply, Request
from strict_clouds.schemas import model

#: What next pages have besides.
_PAGED: Final = frozenset({"$skiptoken"})


def of_request(request: Request) -> Iterator[str]:
    """What is wrong with a request; its version is checked where it is read."""
    known = model("arm")
    if request.rule not in known.methods:
        return
    for name in sorted(set(request.query) - set(known.methods[request.rule]["query"]) - _PAGED):
        yield f"no parameter {name}"
    yield from known.request(request.rule, request.body)


def of_answer(request: Request, reply: Reply) -> Iterator[str]:
    """What is wrong with a success that has a body."""
    known = model("arm")
    if request.rule in known.methods and reply.status < 300 and reply.body is not None:
        yield from known.answer(request.rule, reply.body)
