"""The root of the error tree, and the branch that a gateway can raise.

The control plane's `skyplane_orchestration.errors` continues this tree; the root
lives here because the gateway runs where the library is not installed.

Every leaf says what happened and what to do about it, and carries
`is_permanent`: True when the same call can never succeed unless somebody
changes something first (so a retry only wastes time and money).

Errors cross processes as the three plain values of `to_dict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final


class SkyplaneError(Exception):
    """Root of everything this project raises on purpose."""

    #: Short stable name on the wire, in XCom and in `--json` output.
    code: ClassVar[str] = "skyplane"
    #: True when a retry of the same call cannot help.
    is_permanent: bool = False

    def __init__(self, message: str, *, is_permanent: bool | None = None) -> None:
        super().__init__(message)
        self.message = message
        if is_permanent is not None:
            self.is_permanent = is_permanent

    def to_dict(self) -> dict[str, object]:
        return {"code": self.code, "message": self.message, "is_permanent": self.is_permanent}


class ConfigurationInvalid(SkyplaneError):
    """A value given by the user or by a configuration file cannot be used."""

    code = "configuration-invalid"
    is_permanent = True


class MissingExtra(ConfigurationInvalid, ImportError):
    """A package is not installed that one of the distribution's extras brings.

    Also an ImportError, for those who try an import and do without.
    """

    code = "missing-extra"

    @classmethod
    def of(cls, what: str, extra: str) -> MissingExtra:
        """The error that names the extra.

        Args:
            what: what cannot be done or used without it.
            extra: name of the extra.
        """
        return cls(
            f"{what} needs the extra {extra!r}: pip install 'skyplane-orchestration[{extra}]'"
        )


# ---------------------------------------------------------------- object stores


class StoreError(SkyplaneError):
    """An object store refused or failed a request."""

    code = "store-error"


class NotFound(StoreError):
    """The bucket, object or upload does not exist."""

    code = "not-found"
    is_permanent = True


class NotRestored(StoreError):
    """The object lies in an archive, and cannot be read before it is restored."""

    code = "not-restored"
    is_permanent = True


class PermissionDenied(StoreError):
    """The credentials are good, but do not allow this."""

    code = "permission-denied"
    is_permanent = True


class Unauthenticated(StoreError):
    """The store does not accept the credentials at all, or there are none."""

    code = "unauthenticated"
    is_permanent = True


class CredentialsExpired(StoreError):
    """The credentials were good, and are not any more: fresh ones mend it."""

    code = "credentials-expired"


class PreconditionFailed(StoreError):
    """If-Match, If-None-Match or a pinned version no longer holds."""

    code = "precondition-failed"
    is_permanent = True


class AlreadyExists(StoreError):
    """There is an object at the destination, and the conflict rule keeps it."""

    code = "already-exists"
    is_permanent = True


class ChecksumMismatch(StoreError):
    """Bytes do not have the checksum they were sent or read with."""

    code = "checksum-mismatch"


class ReadBackMismatch(ChecksumMismatch):
    """An object was written and then found to have other bytes; it was removed.

    Whatever it had replaced is gone with it: the next attempt must find nothing there.
    """

    code = "read-back-mismatch"


class ObjectTooLarge(StoreError):
    """An object is longer than what of its kind is read at once."""

    code = "object-too-large"
    is_permanent = True


class JournalUnreadable(StoreError):
    """What a transfer has left at its destination cannot be read, and is needed to go on."""

    code = "journal-unreadable"
    is_permanent = True


class Throttled(StoreError):
    """The store asks to slow down; `retry_after_s` is how long, where it says so."""

    code = "throttled"
    retry_after_s: float | None = None

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreUnavailable(StoreError):
    """The endpoint cannot be reached, timed out or answered 5xx."""

    code = "store-unavailable"


#: A gateway has waited for these to pass already, for as long as anybody does.
WAITED_FOR: Final = (Throttled, CredentialsExpired)


class InvalidKey(StoreError):
    """The destination cannot hold an object of this name."""

    code = "invalid-key"
    is_permanent = True


class MetadataNotCarried(StoreError):
    """A copy would lack what the object has at its source, and the job forbids that."""

    code = "metadata-not-carried"
    is_permanent = True


# ------------------------------------------------------------------ the gateways


class GatewayError(SkyplaneError):
    """A gateway refused or failed a request."""

    code = "gateway-error"


class GatewayUnreachable(GatewayError):
    """A gateway does not answer on its control address."""

    code = "gateway-unreachable"


class AddressTaken(GatewayUnreachable):
    """Somebody else answers on a gateway's control address: the gateway itself is gone."""

    code = "address-taken"


class GatewayDraining(GatewayUnreachable):
    """A gateway was told to end: it takes nothing new, and is gone soon."""

    code = "gateway-draining"


class GatewayLost(GatewayError):
    """A gateway or a path went away while a transfer ran over it."""

    code = "gateway-lost"


class PathEnded(GatewayLost):
    """A gateway of the path has left in good order: the path is not built again."""

    code = "path-ended"


class NotAuthorised(GatewayError):
    """The peer's certificate or hello does not allow what it asked for."""

    code = "not-authorised"
    is_permanent = True


class StaleEpoch(GatewayError):
    """A lead of an older epoch tried to write; a newer one is in charge."""

    code = "stale-epoch"
    is_permanent = True


class VersionMismatch(GatewayError):
    """Gateway and caller speak different versions."""

    code = "version-mismatch"
    is_permanent = True


class AlreadyRunning(GatewayError):
    """Another transfer holds what this one asked for."""

    code = "already-running"


class UnknownTransfer(GatewayError):
    """The gateway has no transfer of that key."""

    code = "unknown-transfer"
    is_permanent = True


class Cancelled(GatewayError):
    """The transfer was cancelled by its owner."""

    code = "cancelled"
    is_permanent = True


class Stopped(GatewayError):
    """The transfer was stopped before its end, and what it has begun was kept."""

    code = "stopped"


class EmptySource(GatewayError):
    """There is nothing to copy under the source prefix."""

    code = "empty-source"
    is_permanent = True


class ObjectsFailed(GatewayError):
    """The transfer ran to its end, but not every object is at the destination."""

    code = "objects-failed"


class InternalError(GatewayError):
    """Something that nobody has foreseen; the log has the traceback."""

    code = "internal-error"

    @classmethod
    def of(cls, error: BaseException, what: str, where: str) -> InternalError:
        """For an error of our own.

        Args:
            what: what was being done, with the object's name where there is one.
            where: the gateway and its part in the transfer; its log must have the traceback.
        """
        return cls(
            f"{what}: {where} failed with an unforeseen {type(error).__name__}; the traceback is "
            "at the end of its log, so please report both"
        )


class Overloaded(GatewayError):
    """A bounded queue or buffer is full; try again later."""

    code = "overloaded"


def _leaves(root: type[SkyplaneError]) -> dict[str, type[SkyplaneError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_leaves(child))
    return found


def from_dict(data: Mapping[str, object]) -> SkyplaneError:
    """Rebuild the error that another process sent as `to_dict`."""
    kind = _leaves(SkyplaneError).get(str(data.get("code")), SkyplaneError)
    error = kind.__new__(kind)
    SkyplaneError.__init__(
        error,
        str(data.get("message", "unknown error")),
        is_permanent=bool(data.get("is_permanent", False)),
    )
    return error
