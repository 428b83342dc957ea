"""What a cloud's API says when it refuses a request, and the errors that all clouds share.

Errors go by code and status, never by text, which is only shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudUnavailable,
    ConfigurationInvalid,
    SkyplaneError,
)


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A refusal as a cloud sent it.

    Args:
        action: as permissions name it, `ec2:RunInstances`.
        code: the cloud's; empty for none.
        status: of HTTP; 0 for an operation without one.
        message: the cloud's text.
        where: region tag, or what else was asked.
        is_transient: the same call may succeed in a moment.
        quota: name of the quota, if the cloud names it apart from its text.
        metric: what that quota counts.
    """

    action: str
    code: str
    status: int
    message: str
    where: str
    is_transient: bool = False
    quota: str = ""
    metric: str = ""


class CloudRefusal(Exception):
    """A refusal that the caller expects; it never leaves the package of a cloud."""

    def __init__(self, answer: ErrorResponse) -> None:
        super().__init__(f"{answer.action}: {answer.code}")
        self.answer = answer
        self.code = answer.code


def no_capacity(said: str) -> CapacityUnavailable:
    """The error for a zone without such an instance. `said` begins the message."""
    return CapacityUnavailable(
        f"{said}; try again later, or plan with another instance type or region"
    )


def torn_down(what: str) -> CloudUnavailable:
    """The error for a part of a fleet that is not there any more; `what` begins the message."""
    return CloudUnavailable(
        f"{what} is gone; another worker may be tearing the fleet down: try again"
    )


def otherwise(answer: ErrorResponse, said: str, *, is_invalid: bool) -> SkyplaneError:
    """The error for a refusal that has no advice of its own.

    Args:
        is_invalid: the request cannot succeed as it is.
    """
    if answer.is_transient:
        return CloudUnavailable(f"{said} and all retries; try again later")
    kind = ConfigurationInvalid if is_invalid else CloudUnavailable
    return kind(f"{said}: {answer.message}")
