"""Requests of the S3 store, and its configuration."""

from __future__ import annotations

import hashlib
import random
import socket
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common import errors
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import PartInfo
from skyplane_gateway.stores import Credentials, StoreSpec
from skyplane_gateway.stores.base import read_exactly
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_gateway.stores.s3 import client
from skyplane_gateway.stores.s3.body import SentBody
from skyplane_gateway.stores.s3.client import bucket_region
from skyplane_gateway.stores.s3.credentials import ambient_credentials

CRC = "x-amz-checksum-crc32c"
MIB = 1 << 20
CREDENTIALS = Credentials({"access_key_id": "a", "secret_access_key": "b"})


def started() -> Any:
    body = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
    return Reply(200, body)


def test_a_body_is_sent_once_with_its_checksum_and_without_a_hash(scripted: ScriptedServer) -> None:
    store = scripted.open(Reply(200, headers={"ETag": '"e"'}))
    store.put("k", b"123456789", crc32c=crc32c(b"123456789"))
    (request,) = scripted.requests
    assert request.body == b"123456789"
    # 0xE3069283 is the check value of CRC-32C.
    assert request.headers[CRC] == "4waSgw=="
    assert request.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert "expect" not in request.headers


class SlowServer:
    """Reads a body so slowly that the whole takes longer than the timeout of a block."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        # Otherwise the kernel buffers megabytes.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.bodies: list[int] = []
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> SlowServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, connection.makefile("rb") as requests:
                    self._answer(connection, requests)

    def _answer(self, connection: socket.socket, requests: BinaryIO) -> None:
        size, taken = 0, 0
        while (line := requests.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            size = int(value) if name.lower() == b"content-length" else size
        while taken < size and (block := requests.read(min(MIB, size - taken))):
            taken += len(block)
            time.sleep(0.06)
        self.bodies.append(taken)
        connection.sendall(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n\r\n')


def test_a_slow_server_does_not_time_out_while_it_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The socket's timeout covers one call of `send`, so a part is sent in blocks."""
    monkeypatch.setattr(client, "_CONNECT_TIMEOUT_S", 0.5)
    body = bytearray(16 * MIB)
    with SlowServer() as server:
        spec = StoreSpec("s3", "bkt", server.url, "us-east-1")
        with closing(open_without_retries(spec, CREDENTIALS)) as store:
            part = store.put_part("k", "u", 1, body, offset=0, crc32c=crc32c(body))
    assert part.etag == '"e"'
    assert server.bodies == [len(body)]


def test_a_body_is_sent_from_the_memory_of_its_caller(scripted: ScriptedServer) -> None:
    """botocore's signer and urllib3 copy a body that does not look like a file."""
    body = bytearray(3 * MIB)
    sent = SentBody(memoryview(body)[1:])
    assert all(block.obj is body for block in sent.blocks())
    assert sum(map(len, sent.blocks())) == len(body) - 1
    store = scripted.open(Reply(200, headers={"ETag": '"e"'}), payload="signed")
    store.put("k", memoryview(body)[1:])
    (request,) = scripted.requests
    assert request.body == body[1:]
    assert request.headers["x-amz-content-sha256"] == hashlib.sha256(body[1:]).hexdigest()


def test_a_body_is_read_straight_from_its_connection_which_serves_again(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[Any] = []
    accept = scripted.process_request

    def process_request(*given: Any) -> None:
        connections.append(given)
        accept(*given)

    monkeypatch.setattr(scripted, "process_request", process_request)

    def no_copy(*_: Any, **__: Any) -> bytes:
        raise AssertionError("urllib3 has read the body")

    body = random.Random(1).randbytes(3 * MIB + 1)
    headers = {"ETag": '"e"', "Content-Range": f"bytes 0-{len(body) - 1}/{len(body)}"}
    store = scripted.open(Reply(206, body, headers), Reply(206, body, headers))
    for _ in range(2):
        with (
            store.read("k", offset=0, length=len(body), if_match=None) as reader,
            monkeypatch.context() as patched,
        ):
            patched.setattr("urllib3.response.HTTPResponse.read", no_copy)
            assert read_exactly(reader, len(body)) == body
    assert len(connections) == 1


def test_a_large_body_is_sent_whole_after_a_redirect(scripted: ScriptedServer) -> None:
    body = random.Random(1).randbytes(3 * MIB + 1)
    redirect = Reply(
        301, b"<Error><Code>PermanentRedirect</Code></Error>", {"x-amz-bucket-region": "eu-west-1"}
    )
    store = scripted.open(redirect, Reply(200, headers={"ETag": '"e"'}))
    store.put("k", body)
    assert [request.body == body for request in scripted.requests] == [True, True]
    assert [request.headers["content-length"] for request in scripted.requests] == [
        str(len(body))
    ] * 2
    assert "transfer-encoding" not in scripted.requests[0].headers


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("new\nline", "/bkt/new%0Aline"),
        ("a/../b", "/bkt/a/../b"),
        ("./x", "/bkt/./x"),
        ("a//b", "/bkt/a//b"),
        ("50%2Boff+x y", "/bkt/50%252Boff%2Bx%20y"),
        ("?#&", "/bkt/%3F%23%26"),
    ],
)
def test_keys_are_sent_verbatim(scripted: ScriptedServer, key: str, path: str) -> None:
    scripted.open(Reply(200, headers={"ETag": '"e"'})).put(key, b"")
    assert scripted.requests[0].path == path


def test_a_version_is_deleted_conditionally(scripted: ScriptedServer) -> None:
    body = b"<Error><Code>PreconditionFailed</Code><Message>no</Message></Error>"
    head = {"ETag": '"f"', "Content-Length": "1", "Last-Modified": "Tue, 02 Jan 2024 03:04:05 GMT"}
    store = scripted.open(Reply(204), Reply(412, body), Reply(200, headers=head))
    store.delete("k", if_match='"e"')
    assert scripted.requests[0].headers["if-match"] == '"e"'
    with pytest.raises(errors.PreconditionFailed):
        store.delete("k", if_match='"e"')


def test_a_service_without_conditional_deletes_deletes_any_version(
    scripted: ScriptedServer,
) -> None:
    body = b"<Error><Code>NotImplemented</Code><Message>no</Message></Error>"
    scripted.open(Reply(501, body), Reply(204)).delete("k", if_match='"e"')
    assert ["if-match" in one.headers for one in scripted.requests] == [True, False]


@pytest.mark.parametrize(
    ("checksum", "sent"),
    [("trusted", ("CRC32C", "FULL_OBJECT")), ("", ("CRC32C", None)), ("none", (None, None))],
)
def test_only_a_trusted_store_computes_the_checksum_of_the_whole(
    scripted: ScriptedServer, checksum: str, sent: tuple[str | None, str | None]
) -> None:
    scripted.open(started(), checksum=checksum).create_upload("k")
    headers = scripted.requests[0].headers
    names = ("x-amz-checksum-algorithm", "x-amz-checksum-type")
    assert tuple(headers.get(name) for name in names) == sent


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({CRC: "4waSgw==", "x-amz-checksum-type": "FULL_OBJECT"}, 0xE3069283),
        ({CRC: "4waSgw=="}, 0xE3069283),
        ({CRC: "AAAAAQ=="}, 1),
        # This server ignores the header.
        ({}, None),
    ],
)
def test_a_write_returns_the_checksum_of_a_trusted_store(
    scripted: ScriptedServer, headers: dict[str, str], found: int | None
) -> None:
    answer = Reply(200, headers={"ETag": '"e"', **headers})
    store = scripted.open(answer, checksum="trusted")
    assert store.put("k", b"123456789", crc32c=crc32c(b"123456789")).crc32c == found
    distrusted = scripted.open(answer)
    assert distrusted.put("k", b"123456789", crc32c=crc32c(b"123456789")).crc32c is None


def test_a_trusted_completion_names_size_and_checksum(scripted: ScriptedServer) -> None:
    done = b'<CompleteMultipartUploadResult><ETag>"e-1"</ETag></CompleteMultipartUploadResult>'
    head = {
        "ETag": '"e-1"',
        "Content-Length": "9",
        "Last-Modified": "Tue, 02 Jan 2024 03:04:05 GMT",
        CRC: "4waSgw==",
        "x-amz-checksum-type": "FULL_OBJECT",
    }
    store = scripted.open(Reply(200, done), Reply(200, headers=head), checksum="trusted")
    part = PartInfo(1, '"e"', 9, crc32c(b"123456789"))
    info = store.complete_upload("k", "u", [part], size_bytes=9, crc32c=crc32c(b"123456789"))
    assert info.crc32c == crc32c(b"123456789")
    request = scripted.requests[0]
    assert request.headers[CRC] == "4waSgw=="
    assert request.headers["x-amz-mp-object-size"] == "9"
    assert b"<ChecksumCRC32C>4waSgw==</ChecksumCRC32C>" in request.body


def test_aws_itself_is_trusted_and_an_endpoint_is_not() -> None:
    def trusts(spec: StoreSpec) -> bool:
        return open_without_retries(spec, CREDENTIALS).capabilities.trusts_checksum

    assert trusts(StoreSpec("s3", "b"))
    assert not trusts(StoreSpec("s3", "b", "http://127.0.0.1:1"))
    assert trusts(StoreSpec("s3", "b", "http://127.0.0.1:1", None, (("checksum", "trusted"),)))


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No credentials in the environment, in files or from a metadata service."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return monkeypatch


def test_there_may_be_no_ambient_credentials(
    bare_environment: pytest.MonkeyPatch, scripted: ScriptedServer
) -> None:
    assert ambient_credentials() is None
    with pytest.raises(errors.Unauthenticated):
        open_without_retries(scripted.spec()).check()


def test_ambient_credentials_are_frozen(bare_environment: pytest.MonkeyPatch) -> None:
    bare_environment.setenv("AWS_ACCESS_KEY_ID", "AK")
    bare_environment.setenv("AWS_SECRET_ACCESS_KEY", "SK")
    bare_environment.setenv("AWS_SESSION_TOKEN", "ST")
    found = ambient_credentials()
    assert found is not None
    assert dict(found) == {
        "access_key_id": "AK",
        "secret_access_key": "SK",
        "session_token": "ST",
    }


def test_anonymous_requests_are_not_signed(
    bare_environment: pytest.MonkeyPatch, scripted: ScriptedServer
) -> None:
    scripted.replies.append(
        Reply(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    )
    open_without_retries(scripted.spec(anonymous="true")).check()
    assert "authorization" not in scripted.requests[0].headers


@pytest.mark.parametrize("status", [200, 403])
def test_the_region_is_read_from_a_refusal_too(scripted: ScriptedServer, status: int) -> None:
    scripted.replies.append(Reply(status, headers={"x-amz-bucket-region": "eu-west-3"}))
    assert bucket_region(scripted.spec(), CREDENTIALS) == "eu-west-3"


def test_the_name_of_an_access_point_has_its_region() -> None:
    arn = "arn:aws:s3:eu-west-1:123456789012:accesspoint/name"
    spec = StoreSpec("s3", arn, "http://127.0.0.1:9")
    assert bucket_region(spec, CREDENTIALS) == "eu-west-1"


def test_a_store_may_name_no_region(scripted: ScriptedServer) -> None:
    scripted.replies += [Reply(200), Reply(403), Reply(404)]
    assert bucket_region(scripted.spec(), CREDENTIALS) is None
    with pytest.raises(errors.PermissionDenied):
        bucket_region(scripted.spec(), CREDENTIALS)
    with pytest.raises(errors.NotFound):
        bucket_region(scripted.spec(), CREDENTIALS)
