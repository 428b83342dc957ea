"""The root of the error tree, and the errors that a gateway raises.

`skyplane_orchestration.errors` continues this tree. The root is here because a gateway's
machine does not have the library.

Every message says what happened and what to do. `is_permanent` is True when a retry of the
same call cannot succeed until somebody changes something.

Errors cross processes as the plain values of `to_dict`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Final, Self

from skyplane_gateway.common.wording import (
    FieldName,
    fields_of,
    in_words_of,
    parts_to_list,
    with_fields,
    with_parts,
)


class SkyplaneError(Exception):
    """Root of all errors that this project raises."""

    #: Short stable name on the wire, in XCom and in `--json` output; for `NotFound` it is
    #: `not-found`. So the name of a class is part of the public interface.
    code: ClassVar[str] = "skyplane"
    #: True when a retry of the same call cannot help.
    is_permanent: bool = False

    def __init__(self, message: str, *, is_permanent: bool | None = None) -> None:
        super().__init__(message)
        self.message = message
        if is_permanent is not None:
            self.is_permanent = is_permanent

    def __init_subclass__(cls, *, is_permanent: bool | None = None) -> None:
        super().__init_subclass__()
        if is_permanent is not None:
            cls.is_permanent = is_permanent
        if "code" not in vars(cls):
            cls.code = re.sub(r"\B([A-Z])", r"-\1", cls.__name__).lower()

    @classmethod
    def about(cls, template: str, /, **values: object) -> Self:
        """The error that names fields; see `with_fields`."""
        return cls(with_fields(template, **values))

    def put_before(self, place: str) -> None:
        """Put the place of what is wrong before the message."""
        self.message = place + ": " + self.message
        self.args = (self.message,)

    def to_dict(self) -> dict[str, object]:
        found = {"code": self.code, "message": str(self.message), "is_permanent": self.is_permanent}
        parts = parts_to_list(self.message)
        return {**found, "parts": parts} if parts else found

    @property
    def fields(self) -> tuple[str, ...]:
        """Names, as in Python, of the fields that the message is about."""
        return tuple(one.name for one in fields_of(self.message))


@contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """Give fields other names in the errors of the block: those of the caller's arguments."""
    try:
        yield
    except SkyplaneError as error:
        error.message = in_words_of(
            error.message, lambda one: FieldName(names.get(one.name, one.name))
        )
        error.args = (error.message,)
        raise


class ConfigurationInvalid(SkyplaneError, is_permanent=True):
    """A value given by the user or by a configuration file cannot be used."""


class MissingExtra(ConfigurationInvalid, ImportError):
    """A package of one of the distribution's extras is not installed.

    Also an ImportError, for callers that try an import.
    """

    @classmethod
    def of(cls, what: str, extra: str) -> MissingExtra:
        """The error that names the extra; `what` is the feature that needs it."""
        return cls(
            f"{what} needs the extra {extra!r}: pip install 'skyplane-orchestration[{extra}]'"
        )


class CredentialsTooWide(ConfigurationInvalid):
    """Gateways would get credentials that reach more than the places of their job."""

    @classmethod
    def of(cls, places: str, why: str, needed: str) -> Self:
        """The error that says what to change.

        Args:
            places: URLs of what the credentials should be limited to.
            why: why there are no such credentials.
            needed: what makes them possible; one line.
        """
        return cls.about(
            "gateways get only credentials that are limited to {places}, and {why}; {needed}; or"
            " let gateways on instances use an identity of their machines; or set {setting} to"
            " whole",
            places=places,
            why=why,
            needed=needed,
            setting=FieldName("gateway_credentials"),
        )


# ---------------------------------------------------------------- object stores


class StoreError(SkyplaneError):
    """An object store refused or failed a request."""


class NotFound(StoreError, is_permanent=True):
    """The bucket, object or upload does not exist."""


class NotRestored(StoreError, is_permanent=True):
    """The object is archived and must be restored before it can be read."""


class PermissionDenied(StoreError, is_permanent=True):
    """The credentials are valid, but do not allow this request."""


class Unauthenticated(StoreError, is_permanent=True):
    """The store rejects the credentials, or there are none."""


class CredentialsExpired(StoreError):
    """The credentials have expired; fresh ones are needed."""


class PreconditionFailed(StoreError, is_permanent=True):
    """If-Match, If-None-Match or a pinned version does not hold any more."""


class AlreadyExists(StoreError, is_permanent=True):
    """The destination has an object of this key, and the conflict rule keeps it."""


class ChecksumMismatch(StoreError):
    """The bytes do not match the checksum with which they were sent or read."""


class ReadBackMismatch(ChecksumMismatch):
    """A written object had other bytes when it was read back, so it was removed.

    The object that it had replaced is lost too: the next attempt expects an empty key.
    """


class ObjectTooLarge(StoreError, is_permanent=True):
    """An object, such as a journal, exceeds the size limit of its kind."""


class JournalUnreadable(StoreError, is_permanent=True):
    """A journal that a resume needs cannot be read."""


class ManifestUnreadable(StoreError, is_permanent=True):
    """What the manifest of a place says cannot be used; transfers do without it.

    `etag`: of the pointer that a new manifest may replace; empty where it has to stay.
    """

    etag: str = ""

    def __init__(self, message: str, *, etag: str = "") -> None:
        super().__init__(message)
        self.etag = etag


class Throttled(StoreError):
    """The store asks for fewer requests; `retry_after_s` is its Retry-After, if it sent one."""

    retry_after_s: float | None = None

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreUnavailable(StoreError):
    """The endpoint cannot be reached, timed out or answered 5xx."""


#: A gateway has already waited for these to end, up to the limit of its retry policy.
WAITED_FOR: Final = (Throttled, CredentialsExpired)


class InvalidKey(StoreError, is_permanent=True):
    """The destination cannot store an object under this key."""


class MetadataNotCarried(StoreError, is_permanent=True):
    """A copy would lose metadata of its source, and the job forbids that."""


# ------------------------------------------------------------------ the gateways


class GatewayError(SkyplaneError):
    """A gateway refused or failed a request."""


class GatewayUnreachable(GatewayError):
    """A gateway does not answer on its control address."""


class AddressTaken(GatewayUnreachable):
    """Another process answers on a gateway's control address: the gateway is gone."""


class GatewayDraining(GatewayUnreachable):
    """A gateway is ending and accepts no new work."""


class GatewayLost(GatewayError):
    """A gateway or a path was lost during a transfer."""


class PathEnded(GatewayLost):
    """A gateway of the path has shut down, so the path is not rebuilt."""


class NotAuthorised(GatewayError, is_permanent=True):
    """The peer's certificate or HELLO does not allow the request."""


class StaleEpoch(GatewayError, is_permanent=True):
    """A lead of an older epoch tried to write; a newer epoch has replaced it."""


class UnknownTransfer(GatewayError, is_permanent=True):
    """The gateway has no transfer of this key."""


class Cancelled(GatewayError, is_permanent=True):
    """The transfer was cancelled by its owner."""


class Stopped(GatewayError):
    """The transfer was stopped before its end; its uploads were kept for a resume."""


class EmptySource(GatewayError, is_permanent=True):
    """The source prefix has no objects to copy."""


class ObjectsFailed(GatewayError):
    """The transfer has ended, but some objects are not at the destination."""


class InternalError(GatewayError):
    """An unexpected error; the log has the traceback."""

    @classmethod
    def of(cls, error: BaseException, what: str, where: str) -> InternalError:
        """For a defect of this project.

        Args:
            what: the operation, with the object's key if there is one.
            where: the gateway and its role in the transfer.
        """
        return cls(
            f"{what}: {where} failed with an unexpected {type(error).__name__}; the traceback is "
            "at the end of its log; please report both"
        )


class Overloaded(GatewayError):
    """A bounded queue or buffer is full; try again later."""


def _leaves(root: type[SkyplaneError]) -> dict[str, type[SkyplaneError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_leaves(child))
    return found


def from_dict(data: Mapping[str, object]) -> SkyplaneError:
    """The error that another process sent as `to_dict`."""
    kind = _leaves(SkyplaneError).get(str(data.get("code")), SkyplaneError)
    error = kind.__new__(kind)
    SkyplaneError.__init__(
        error,
        with_parts(str(data.get("message", "unknown error")), data.get("parts")),
        is_permanent=bool(data.get("is_permanent", False)),
    )
    return error
