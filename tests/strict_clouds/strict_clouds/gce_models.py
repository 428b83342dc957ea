"""Requests and answers of the strict Compute Engine against Google's discovery documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from strict_clouds.gce_wire import (
    METHODS,
    TEST_ACCOUNT_PERMISSIONS,
    TEST_PERMISSIONS,
    Request,
)
from strict_clouds.schemas import Model, model

#: Method of the fake -> file, method there.
_NAMES: Final = {
    **{one: ("compute", f"compute.{one}") for one in METHODS},
    TEST_PERMISSIONS: ("resource_manager", f"cloudresourcemanager.{TEST_PERMISSIONS}"),
    TEST_ACCOUNT_PERMISSIONS: ("iam", f"iam.projects.{TEST_ACCOUNT_PERMISSIONS}"),
}


def _model(request: Request) -> tuple[Model, str]:
    name, method = _NAMES[request.method]
    return model(name), method


def of_request(request: Request) -> Iterator[str]:
    """What is wrong with a request."""
    known, method = _model(request)
    yield from known.query(method, request.query)
    if method.startswith("compute."):
        yield from known.path(method, {"project": request.project, **request.path})
    yield from known.request(method, request.body)


def of_answer(request: Request, body: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a success."""
    known, method = _model(request)
    yield from known.answer(method, body)
