"""Sends requests to one container, each once, through urllib3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import quote, urlencode

import urllib3

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.kept_properties import KEEP
from skyplane_gateway.common.objects import Body, Credentials, StoreSpec
from skyplane_gateway.stores.azure.connection_strings import url_of_account
from skyplane_gateway.stores.azure.credentials import Signer, signer_of
from skyplane_gateway.stores.azure.error_mapping import Refused, mapped
from skyplane_gateway.stores.azure.requests import claimed_crc32c, md5_of
from skyplane_gateway.stores.base import RangeReader
from skyplane_gateway.stores.body_blocks import Blocks
from skyplane_gateway.stores.checksums import Stated, range_of_whole
from skyplane_gateway.stores.options import check_options, uses_md5
from skyplane_gateway.stores.response_validation import NoAnswer, joined
from skyplane_gateway.stores.server_clock import ServerClock
from skyplane_gateway.stores.tls_and_proxy import tls_and_proxy_to

#: Of the service; see "Versioning for the Azure Storage services".
_API_VERSION: Final = "2023-11-03"
#: More than the gateway's threads for stores, so that no thread waits for a connection.
_CONNECTIONS: Final = 64
_TIMEOUT: Final = urllib3.Timeout(connect=10, read=60)
#: Of a body, and of what is read of an answer at once.
_BLOCK_BYTES: Final = 256 << 10
#: A read returns at most so much, since urllib3 makes a new buffer for it.
_STEP_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class AzureRequest:
    """One request, for threads and for asyncio.

    Attributes:
        path: within the container, not yet quoted; empty for the container itself.
        expected: the status of success.
    """

    method: str
    path: str
    expected: int
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AzureResponse:
    """Of one request; header names in lower case."""

    headers: Mapping[str, str]
    body: bytes


class Container:
    """One container at one endpoint, with its credentials. Thread-safe.

    Attributes:
        trusts_checksum: our claim in a blob's metadata counts as its checksum.
        uses_md5: see `options.uses_md5`.
        reads_tags: reads of a blob's attributes also ask for its tags.
    """

    def __init__(self, spec: StoreSpec, credentials: Credentials | None) -> None:
        check_options(spec)
        self.spec = spec
        self.server_clock = ServerClock()
        self.uses_md5 = uses_md5(spec)
        self.reads_tags = spec.option("tags") == KEEP
        account, _, name = spec.bucket.partition("/")
        if not account or not name or "/" in name:
            raise ConfigurationInvalid(
                f"{spec.bucket!r} names no container; write az://account/container/"
            )
        self.doing = spec.doing
        account_url = url_of_account(account, spec.endpoint_url)
        self._url = f"{account_url}/{quote(name)}"
        is_anonymous = spec.option("anonymous") == "true"
        self.signer: Signer = signer_of(
            account_url, account, credentials, is_anonymous=is_anonymous
        )
        self.trusts_checksum = spec.option("checksum") == "trusted"
        self.way = tls_and_proxy_to(account_url)
        connections = int(spec.option("connections", str(_CONNECTIONS)))
        self._pool = (
            urllib3.PoolManager(maxsize=connections, ssl_context=self.way.tls)
            if self.way.proxy is None
            else urllib3.ProxyManager(self.way.proxy, maxsize=connections, ssl_context=self.way.tls)
        )

    def stated(self, headers: Mapping[str, str], length: int) -> Stated | None:
        """What an answer states of a whole blob of so many bytes; None for that of a range."""
        if headers.get("content-range") != range_of_whole(length):
            return None
        found = Stated.crc32c(claimed_crc32c(headers)) if self.trusts_checksum else None
        return found or Stated.md5(md5_of(headers) if self.uses_md5 else None)

    def signed(self, wanted: AzureRequest, body_bytes: int) -> tuple[str, dict[str, str]]:
        """The URL and all headers of a request with a body of so many bytes. Raises AzureError."""
        path = f"/{quote(wanted.path, safe='/~')}" if wanted.path else ""
        query = f"?{urlencode(wanted.query, quote_via=quote)}" if wanted.query else ""
        headers = {"x-ms-version": _API_VERSION, **wanted.headers}
        headers["x-ms-date"] = formatdate(usegmt=True)
        if wanted.method == "PUT":
            headers["content-length"] = str(body_bytes)
        url = self.signer.sign(wanted.method, self._url + path + query, headers)
        return url, headers

    def send(self, wanted: AzureRequest, body: Body = b"") -> AzureResponse:
        """The answer with its body. Raises Refused, NoAnswer, AzureError, HTTPError."""
        answer = self.open(wanted, body)
        try:
            found = AzureResponse(_headers(answer), joined(answer.stream(decode_content=False)))
        except NoAnswer:
            answer.close()
            raise
        finally:
            answer.release_conn()
        if wanted.method != "GET" and found.body:
            raise NoAnswer("has a body")
        return found

    def open(self, wanted: AzureRequest, body: Body = b"") -> urllib3.BaseHTTPResponse:
        """As `send`, but the body of the answer is not read yet."""
        url, headers = self.signed(wanted, len(body))
        # Any: urllib3's types know no buffers, its code does.
        blocks: Any = Blocks(body, _BLOCK_BYTES) if wanted.method == "PUT" else None
        answer = self._pool.request(
            wanted.method,
            url,
            headers=headers,
            body=blocks,
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=_TIMEOUT,
        )
        self.server_clock.note(answer.headers.get("date"))
        if answer.status == wanted.expected:
            return answer
        try:
            # A short body that was read leaves the connection usable.
            answer.read(_BLOCK_BYTES, decode_content=False)
        finally:
            answer.release_conn()
        raise self.refused(answer.status, _headers(answer))

    def refused(self, status: int, headers: Mapping[str, str]) -> Refused:
        """The error for an answer other than the expected one."""
        return Refused(status, headers, expires_unix_s=self.signer.expires_unix_s)

    def close(self) -> None:
        self._pool.clear()


class AzureReader(RangeReader[urllib3.BaseHTTPResponse]):
    """See `Reader`. Holds one connection of the pool until its end or `close`."""

    def readinto(self, buffer: memoryview) -> int:
        count = super().readinto(buffer)
        if self._remaining == 0:
            self.close()
        return count

    def _fill(self, view: memoryview) -> int:
        with mapped(self._what):
            data = self._source.read(min(len(view), _STEP_BYTES), decode_content=False)
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """A connection whose body was read to its end is used again."""
        if self._remaining:
            self._source.close()
        self._source.release_conn()


def _headers(answer: urllib3.BaseHTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}
