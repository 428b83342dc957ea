"""Maps answers of Azure Blob Storage to this project's errors, by code and status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from azure.core.exceptions import AzureError, ClientAuthenticationError
from urllib3.exceptions import HTTPError, SSLError

from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    ConfigurationInvalid,
    CredentialsExpired,
    InvalidKey,
    NotFound,
    NotRestored,
    PermissionDenied,
    PreconditionFailed,
    SkyplaneError,
    StoreError,
    StoreUnavailable,
    Unauthenticated,
)
from skyplane_gateway.stores.error_rules import (
    Meaning,
    Refusal,
    clock_hint,
    mapping,
    not_trusted,
    unix_s,
    unreachable,
)
from skyplane_gateway.stores.response_validation import NoAnswer, unavailable


class Refused(Exception):
    """An answer of the service other than the expected one.

    Attributes:
        code: `x-ms-error-code`; empty where the answer has none.
        headers: with lower-case names.
        expires_unix_s: when the credentials of the request expire; None if not known.
    """

    def __init__(
        self, status: int, headers: Mapping[str, str], *, expires_unix_s: float | None = None
    ) -> None:
        self.status = status
        self.headers = headers
        self.code = headers.get("x-ms-error-code", "")
        self.expires_unix_s = expires_unix_s
        super().__init__(f"{status} {self.code}")


#: A code decides before a status does.
_MEANINGS: Final = (
    Meaning(
        NotFound,
        "check the name, or it was deleted meanwhile; restore it if it is soft-deleted",
        "BlobNotFound ContainerNotFound ResourceNotFound PathNotFound FilesystemNotFound "
        "ContainerBeingDeleted ContainerDisabled",
        (404,),
    ),
    Meaning(
        Unauthenticated,
        "the store does not accept these credentials: renew or correct them, and check this "
        "machine's clock",
        "AuthenticationFailed InvalidAuthenticationInfo NoAuthenticationInformation",
        (401,),
    ),
    Meaning(
        PermissionDenied,
        "grant it: the role Storage Blob Data Contributor (to read, Storage Blob Data Reader), "
        "which takes effect after minutes, or a SAS with this permission",
        "AuthorizationPermissionMismatch InsufficientAccountPermissions "
        "AuthorizationResourceTypeMismatch AuthorizationServiceMismatch UnauthorizedBlobOverwrite",
        (403,),
    ),
    Meaning(
        PermissionDenied,
        "the account's firewall refuses this machine, or these credentials are not for this "
        "request: check the account's networking, then the key, the signature or the role",
        "AuthorizationFailure",
    ),
    Meaning(
        PermissionDenied,
        "the account's firewall refuses the address of this machine: allow it",
        "AuthorizationSourceIPMismatch IpAuthorizationError",
    ),
    Meaning(
        PermissionDenied,
        "the account allows no public access: give credentials, without anonymous=true",
        "PublicAccessNotPermitted",
    ),
    Meaning(
        PermissionDenied,
        "the account allows no account keys: give a token, or a user delegation SAS",
        "KeyBasedAuthenticationNotPermitted",
    ),
    Meaning(
        PermissionDenied,
        "the account or the signature requires https",
        "AuthorizationProtocolMismatch AccountRequiresHttps",
    ),
    Meaning(PermissionDenied, "the storage account is disabled", "AccountIsDisabled"),
    Meaning(
        PermissionDenied,
        "an immutability policy or a legal hold keeps this blob: remove it, or copy to another "
        "name",
        "BlobImmutableDueToPolicy BlobImmutableDueToLegalHold OperationNotAllowedInImmutablePolicy",
    ),
    Meaning(
        PermissionDenied,
        "another program holds a lease on this blob: wait for it, or break the lease (az storage "
        "blob lease break)",
        "LeaseIdMissing LeaseIdMismatchWithBlobOperation LeaseIdMismatchWithContainerOperation "
        "LeaseLost LeaseNotPresentWithBlobOperation",
    ),
    Meaning(
        PermissionDenied,
        "the blob is encrypted with a key that the customer sends, which is not supported",
        "BlobUsesCustomerSpecifiedEncryption BlobDoesNotUseCustomerSpecifiedEncryption",
    ),
    Meaning(
        StoreError,
        "the blob has snapshots, which are not deleted: delete them first (az storage blob delete "
        "--delete-snapshots only)",
        "SnapshotsPresent",
        is_permanent=True,
    ),
    Meaning(
        StoreError,
        "an append blob or a page blob has this name: delete it, or copy to another name",
        "InvalidBlobType",
        is_permanent=True,
    ),
    Meaning(
        StoreError,
        "another program left staged blocks of this name: complete or delete its blob, or wait a "
        "week until Azure discards them",
        "InvalidBlobOrBlock",
        is_permanent=True,
    ),
    Meaning(
        StoreError,
        "Azure cannot keep this metadata: copy without it",
        "InvalidMetadata EmptyMetadataKey MetadataTooLarge",
        is_permanent=True,
    ),
    Meaning(
        NotRestored,
        "the blob is archived: rehydrate it (az storage blob set-tier --tier Hot), then copy again",
        "BlobArchived BlobBeingRehydrated",
    ),
    Meaning(
        PreconditionFailed,
        "another writer wrote or changed the object meanwhile",
        "ConditionNotMet BlobAlreadyExists TargetConditionNotMet SourceConditionNotMet",
        (412,),
    ),
    Meaning(
        ChecksumMismatch,
        "the bytes changed on the way: send them again",
        "Md5Mismatch Crc64Mismatch InvalidMd5 InvalidCrc64",
    ),
    Meaning(
        ChecksumMismatch,
        "the store has lost a part: upload the object again",
        "InvalidBlockList InvalidBlockId",
    ),
    Meaning(
        InvalidKey,
        "the store cannot hold an object of this name",
        "InvalidResourceName InvalidUri PathAlreadyExists PathConflict ResourceTypeMismatch "
        "DirectoryNotEmpty",
    ),
    Meaning(StoreUnavailable, "try again", "InternalError OperationTimedOut", (408,)),
)


def translate(
    error: Refused | NoAnswer | HTTPError | AzureError | OSError, what: str
) -> SkyplaneError:
    """The leaf of the error tree for a request that failed."""
    if isinstance(error, NoAnswer):
        return unavailable(what, error)
    if isinstance(error, Refused):
        return _from_answer(error, what)
    if isinstance(error, ClientAuthenticationError):
        return Unauthenticated(
            f"{what}: there are no usable credentials; log in (az login), set "
            "AZURE_STORAGE_CONNECTION_STRING, or give this location credentials or a connection"
        )
    if isinstance(error, AzureError):
        return ConfigurationInvalid(f"{what}: the credentials cannot be used; correct them")
    if isinstance(error, SSLError):
        return not_trusted(what, error)
    return unreachable(what, error, "the account's name, the endpoint")


mapped: Final = mapping(translate, Refused, NoAnswer, HTTPError, AzureError, OSError)


def _from_answer(error: Refused, what: str) -> StoreError:
    said = f"{what}: {error.code or error.status}"
    # By the clock of the service. Its codes do not tell an expired token from a wrong one.
    now_s, until_s = unix_s(error.headers.get("date")), error.expires_unix_s
    has_expired = now_s is not None and until_s is not None and now_s >= until_s
    if error.status in (401, 403) and has_expired:
        hint = clock_hint(error.headers)
        return CredentialsExpired(f"{said}; these credentials have expired: renew them{hint}")
    if error.status < 300:
        return unavailable(what, f"has the status {error.status}, which is not that of a success")
    return Refusal(error.status, error.headers, error.code).error(_MEANINGS, said)
