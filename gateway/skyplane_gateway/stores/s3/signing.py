"""How requests reach a bucket: the URL of its keys, the signature, TLS and proxy.

botocore resolves the endpoint (addressing style, access points, FIPS, dual-stack, profiles) and
signs. A HEAD that is prepared and never sent tells the result.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials as SdkCredentials
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from skyplane_gateway.stores.async_requests import Unsettled

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_KEY: Final = "k"
_EVENT: Final = "before-send.s3.HeadObject"
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"


class _UnsignedPayload(S3SigV4Auth):
    """Signs no body: each carries its CRC32C. botocore would sign those over plain HTTP."""

    def payload(self, request: AWSRequest) -> str:
        return _UNSIGNED


@dataclass(frozen=True)
class Signing:
    """The way to one bucket.

    Attributes:
        base_url: the URL of a key without the key.
        host: its `Host` header; botocore would parse the URL for each request.
        credentials: None for anonymous requests.
        ssl: None for plain HTTP.
    """

    base_url: str
    host: str
    region: str
    service: str
    credentials: SdkCredentials | None
    signs_payload: bool
    ssl: ssl.SSLContext | None
    proxy: str | None

    def url(self, key: str) -> str:
        return self.base_url + quote(key, safe="/~")

    def sign(
        self, method: str, key: str, headers: Mapping[str, str], data: Any = b""
    ) -> tuple[str, dict[str, str]]:
        """URL and headers of a request.

        Raises Unsettled while the credentials are renewed, which a thread has to wait for.
        """
        url = self.url(key)
        if self.credentials is None:
            return url, dict(headers)
        is_old = getattr(self.credentials, "refresh_needed", None)
        if is_old is not None and is_old():
            raise Unsettled("the credentials are being renewed")
        kind = S3SigV4Auth if self.signs_payload else _UnsignedPayload
        named = {**headers, "Host": self.host}
        request = AWSRequest(method=method, url=url, headers=named, data=data)
        kind(self.credentials.get_frozen_credentials(), self.service, self.region).add_auth(request)
        return url, dict(request.headers.items())


def signing_of(
    client: S3Client,
    bucket: str,
    credentials: SdkCredentials | None,
    *,
    is_anonymous: bool,
    signs_payload: bool,
    ca_bundle: str | None,
) -> Signing | None:
    """The way to a bucket; None where requests need another signature than SigV4.

    `ca_bundle`: a file; None for that of the environment or botocore's own.
    """
    prepared = _prepared_head(client, bucket)
    base_url = prepared.url.removesuffix(_KEY)
    said = _text(prepared.headers.get("Authorization", b""))
    is_https = base_url.startswith("https://")
    region = service = ""
    if not is_anonymous:
        scope = said.partition("Credential=")[2].partition(",")[0].split("/")
        if credentials is None or not said.startswith("AWS4-HMAC-SHA256 ") or len(scope) < 5:
            return None
        region, service = scope[-3], scope[-2]
    return Signing(
        base_url,
        _text(prepared.headers.get("host", b"")) or urlsplit(base_url).netloc,
        region,
        service,
        credentials,
        signs_payload,
        _tls(ca_bundle) if is_https else None,
        get_environ_proxies(base_url).get("https" if is_https else "http"),
    )


def _tls(ca_bundle: str | None) -> ssl.SSLContext:
    bundle = ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE") or get_cert_path(True)
    return ssl.create_default_context(cafile=bundle)


def _text(header: str | bytes) -> str:
    return header.decode("ascii") if isinstance(header, bytes) else header


class _NoBody:
    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        return iter(())


def _prepared_head(client: S3Client, bucket: str) -> AWSPreparedRequest:
    found: list[AWSPreparedRequest] = []
    here = threading.get_ident()

    # Any: the stubs do not know that an answer of a handler replaces the request.
    def keep(request: AWSPreparedRequest, **_: Any) -> Any:
        if threading.get_ident() != here:
            return None  # A request of another thread, which shares the client.
        found.append(request)
        return AWSResponse(request.url, 200, HTTPHeaders(), _NoBody())

    client.meta.events.register(_EVENT, keep)
    try:
        client.head_object(Bucket=bucket, Key=_KEY)
    finally:
        client.meta.events.unregister(_EVENT, keep)
    return found[0]
