"""Store options that S3 takes as a parameter of each request: encryption, class, ACL and such."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.common.kept_properties import KEEP, is_project_object
from skyplane_gateway.common.objects import StoreSpec

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from mypy_boto3_s3 import S3Client


#: Option -> boto3's parameter and the header.
_PARAMETERS: Final = {
    "acl": ("ACL", "x-amz-acl"),
    "expires": ("Expires", "Expires"),
    "bucket-owner": ("ExpectedBucketOwner", "x-amz-expected-bucket-owner"),
    "requester-pays": ("RequestPayer", "x-amz-request-payer"),
    "sse": ("ServerSideEncryption", "x-amz-server-side-encryption"),
    "sse-kms-key-id": ("SSEKMSKeyId", "x-amz-server-side-encryption-aws-kms-key-id"),
    "storage-class": ("StorageClass", "x-amz-storage-class"),
}
#: Options of requests that write an object.
_OF_WRITES: Final = frozenset({"acl", "expires", "sse", "sse-kms-key-id", "storage-class"})
#: Options that the project's own objects do without.
_OF_COPIES: Final = ("expires", "storage-class")


class RequestParameters:
    """The parameters that the options of one store add to its requests."""

    def __init__(self, spec: StoreSpec) -> None:
        self._values = {name: spec.option(name) for name in _PARAMETERS if spec.option(name)}
        if self._values.get("storage-class") == KEEP:
            # Each write says its class itself.
            del self._values["storage-class"]
        if self._values.get("requester-pays") == "true":
            self._values["requester-pays"] = "requester"
        else:
            self._values.pop("requester-pays", None)

    def register(self, client: S3Client) -> None:
        """Add them to each request of a client whose operation has them."""
        if self._values:
            client.meta.events.register("provide-client-params.s3", self._provide)

    # Any: the stubs do not know that the answer of a handler replaces the parameters.
    def _provide(self, params: dict[str, Any], model: OperationModel, **_: Any) -> Any:
        shape = model.input_shape
        known = {} if shape is None else shape.members
        found = {
            _PARAMETERS[name][0]: value
            for name, value in self._of(params.get("Key", ""))
            if _PARAMETERS[name][0] in known
        }
        return {**found, **params}

    def headers(self, key: str, *, writes: bool) -> dict[str, str]:
        """The same as headers, for requests that boto3 does not send."""
        return {
            _PARAMETERS[name][1]: value
            for name, value in self._of(key)
            if writes or name not in _OF_WRITES
        }

    def _of(self, key: str) -> list[tuple[str, str]]:
        stays = is_project_object(key)
        return [
            (name, value)
            for name, value in self._values.items()
            if not (stays and name in _OF_COPIES)
        ]
