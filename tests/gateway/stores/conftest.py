"""The stores of the conformance suite.

To add a store: add a factory to `_FACTORIES`. It makes an empty bucket and returns a harness that
opens it; every `test_conformance_*` module then runs against it. Name known shortcomings of a
server in `lacks`.

`versitygw` and `rclone` are real S3 servers and `gcs` an emulator of Google Cloud Storage, each in
a process of its own; their tests are skipped, with the reason, where it can neither be found nor
built.

SKYPLANE_TEST_S3_ENDPOINT, with
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, adds one more S3-compatible server, `endpoint`;
SKYPLANE_TEST_S3_LACKS is its list of shortcomings.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import botocore.loaders
import pytest
from azure.storage.blob import ContainerClient
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.faults import azurite, fake_gcs, moto_server, rclone_s3, versitygw
from tests.gateway.stores.async_first import AsyncFirst
from tests.gateway.stores.scripted import CREDENTIALS, ScriptedServer, s3_client
from tests.gateway.stores.vendor_models import requests_are_those_of_the_models  # noqa: F401
from tests.memory_store import create_bucket, delete_bucket

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import ObjectAttributes, ObjectInfo, PartInfo
from skyplane_gateway.stores import Credentials, ObjectStore, StoreSpec
from skyplane_gateway.stores.registry import open_without_retries


@dataclass
class Harness:
    """An empty bucket, with helpers for tests.

    `lacks` names what the server behind it does not do although its protocol says so;
    `refuses` are keys of `test_conformance_objects` that the store cannot hold.
    """

    spec: StoreSpec
    credentials: Credentials | None = None
    lacks: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()
    opened: list[ObjectStore] = field(default_factory=list)
    wrap: Callable[[ObjectStore], Any] = lambda store: store

    def open(self) -> ObjectStore:
        store: ObjectStore = self.wrap(open_without_retries(self.spec, self.credentials))
        self.opened.append(store)
        return store

    def open_missing(self) -> ObjectStore:
        """The same store, but a bucket that does not exist."""
        spec = replace(self.spec, bucket=self.spec.bucket + "-missing")
        store: ObjectStore = self.wrap(open_without_retries(spec, self.credentials))
        self.opened.append(store)
        return store

    @property
    def is_posix(self) -> bool:
        """Keys are paths: a name is a file or a directory, and `..` is not a name."""
        return self.spec.kind == "file" or "posix-keys" in self.lacks

    @property
    def shared(self) -> ObjectStore:
        """The first store that was opened; call `open` for another instance."""
        return self.opened[0] if self.opened else self.open()

    @property
    def part_bytes(self) -> int:
        return max(self.shared.capabilities.min_part_bytes, 64 * 1024)

    def fill(self, keys: list[str], body: bytes = b"") -> None:
        store = self.shared
        with ThreadPoolExecutor(1 if "parallel-writes" in self.lacks else 8) as pool:
            list(pool.map(lambda key: store.put(key, body), keys))

    def read(self, key: str) -> bytes:
        """The whole object, read in blocks of an odd size."""
        info = self.shared.head(key)
        return self.read_range(info, 0, info.size_bytes)

    def read_range(self, info: ObjectInfo, offset: int, length: int) -> bytes:
        body = bytearray()
        buffer = memoryview(bytearray(65_521))
        with self.shared.read(info.key, offset=offset, length=length, if_match=info.etag) as reader:
            while count := reader.readinto(buffer):
                body += buffer[:count]
        return bytes(body)

    def put_parts(self, key: str, upload_id: str, bodies: list[bytes]) -> list[PartInfo]:
        """Store the bodies as the parts 1, 2, ... of an upload."""
        store, offset, parts = self.shared, 0, []
        for number, body in enumerate(bodies, start=1):
            parts.append(
                store.put_part(key, upload_id, number, body, offset=offset, crc32c=crc32c(body))
            )
            offset += len(body)
        return parts

    def s3_client(self) -> Any:
        """Amazon's SDK, for what only it does."""
        assert self.credentials is not None
        return s3_client(str(self.spec.endpoint_url), self.credentials)

    def container_client(self) -> ContainerClient:
        """Microsoft's SDK, for what only it does."""
        assert self.credentials is not None
        account, name = self.spec.bucket.split("/")
        key = {"account_name": account, "account_key": self.credentials["account_key"]}
        return ContainerClient(f"{self.spec.endpoint_url}/{account}", name, credential=key)

    def write_both(self, attributes: ObjectAttributes) -> None:
        """The object `put` of one request, and the object `multi` of parts."""
        store = self.shared
        store.put("put", b"x", attributes=attributes)
        upload_id = store.create_upload("multi", attributes)
        parts = self.put_parts("multi", upload_id, [b"x"])
        store.complete_upload("multi", upload_id, parts, size_bytes=1)


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    with moto_server.running() as url:
        yield url


#: moto neither checks checksums nor enforces If-Match on a completion, answers 500
#: where an upload is gone, compares and writes in two steps, copies any version of a part's
#: source, and its router takes no newline.
_MOTO_LACKS = frozenset(
    {
        "checksums",
        "copy-source-pin",
        "if-match-on-completion",
        "newline",
        "no-such-upload",
        "races",
    }
)


@pytest.fixture(scope="session")
def versitygw_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[versitygw.Server]:
    versions = str(tmp_path_factory.mktemp("versitygw-versions"))
    root = tmp_path_factory.mktemp("versitygw")
    try:
        # Buckets keep versions once a test tells them to.
        with versitygw.running(root, "--versioning-dir", versions) as server:
            yield server
    except versitygw.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def fake_gcs_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with fake_gcs.running(tmp_path_factory.mktemp("fake-gcs") / "log") as url:
            yield url
    except fake_gcs.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def rclone_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with rclone_s3.running(tmp_path_factory.mktemp("rclone")) as url:
            yield url
    except rclone_s3.Unavailable as error:
        pytest.skip(str(error))


def _bucket(url: str, credentials: Credentials) -> StoreSpec:
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    with closing(s3_client(url, credentials)) as client:
        client.create_bucket(Bucket=bucket)
    return StoreSpec("s3", bucket, endpoint_url=url, region="us-east-1")


def _s3(request: pytest.FixtureRequest) -> Harness:
    url: str = request.getfixturevalue("moto_url")
    return Harness(_bucket(url, CREDENTIALS), CREDENTIALS, lacks=_MOTO_LACKS)


def _endpoint(request: pytest.FixtureRequest) -> Harness:
    names = {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY"}
    credentials = Credentials({ours: os.environ[theirs] for ours, theirs in names.items()})
    lacks = frozenset(os.environ.get("SKYPLANE_TEST_S3_LACKS", "").split(","))
    spec = _bucket(os.environ["SKYPLANE_TEST_S3_ENDPOINT"], credentials)
    return Harness(spec, credentials, lacks=lacks)


def _versitygw(request: pytest.FixtureRequest) -> Harness:
    server: versitygw.Server = request.getfixturevalue("versitygw_server")
    credentials = Credentials(
        {
            "access_key_id": server.access_key_id,
            "secret_access_key": server.secret_access_key,
        }
    )
    # It checks and keeps checksums of whole objects, as AWS does.
    spec = replace(_bucket(server.url, credentials), options=(("checksum", "trusted"),))
    return Harness(spec, credentials, lacks=versitygw.LACKS)


def _rclone(request: pytest.FixtureRequest) -> Harness:
    names = ("access_key_id", "secret_access_key")
    credentials = Credentials(dict(zip(names, rclone_s3.KEYS, strict=True)))
    url: str = request.getfixturevalue("rclone_url")
    return Harness(_bucket(url, credentials), credentials, lacks=rclone_s3.LACKS)


def _versitygw_async(request: pytest.FixtureRequest) -> Harness:
    return replace(_versitygw(request), wrap=AsyncFirst)


def _gcs(request: pytest.FixtureRequest) -> Harness:
    url: str = request.getfixturevalue("fake_gcs_url")
    spec = StoreSpec("gcs", fake_gcs.create_bucket(url), endpoint_url=url)
    return Harness(spec, lacks=fake_gcs.LACKS)


def _gcs_async(request: pytest.FixtureRequest) -> Harness:
    return replace(_gcs(request), wrap=AsyncFirst)


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[azurite.Server]:
    try:
        with azurite.running(tmp_path_factory.mktemp("azurite")) as server:
            yield server
    except azurite.Unavailable as error:
        pytest.skip(str(error))


#: The service takes a backslash for a slash, drops dots and refuses control characters.
_AZURE_REFUSES = frozenset(
    {"back\\slash", "new\nline", "tab\tand\x01control", "./x", "a/../b", "../up", "."}
)


def _azure(request: pytest.FixtureRequest) -> Harness:
    server: azurite.Server = request.getfixturevalue("azurite_server")
    name = f"container-{uuid.uuid4().hex[:12]}"
    made = Harness(
        StoreSpec("azure", f"{server.account}/{name}", endpoint_url=server.url),
        Credentials({"account_key": server.account_key}),
        lacks=azurite.LACKS,
        refuses=_AZURE_REFUSES,
    )
    with made.container_client() as client:
        client.create_container()
    return made


def _azure_async(request: pytest.FixtureRequest) -> Harness:
    return replace(_azure(request), wrap=AsyncFirst)


@pytest.fixture
def azure(request: pytest.FixtureRequest) -> Iterator[Harness]:
    made = _azure(request)
    yield made
    for store in made.opened:
        store.close()


def _file(request: pytest.FixtureRequest) -> Harness:
    folder: Path = request.getfixturevalue("tmp_path")
    root = folder / "root"
    root.mkdir()
    return Harness(StoreSpec("file", str(root)))


def _memory(request: pytest.FixtureRequest) -> Harness:
    name = uuid.uuid4().hex
    create_bucket(name)
    request.addfinalizer(lambda: delete_bucket(name))
    return Harness(StoreSpec("memory", name))


_FACTORIES: dict[str, Callable[[pytest.FixtureRequest], Harness]] = {
    "azure": _azure,
    "memory": _memory,
    "file": _file,
    "gcs": _gcs,
    "s3": _s3,
    "versitygw": _versitygw,
}
#: The same, with small objects over asyncio first.
_ASYNC = {
    "azure-async": _azure_async,
    "gcs-async": _gcs_async,
    "versitygw-async": _versitygw_async,
}
if "SKYPLANE_TEST_S3_ENDPOINT" in os.environ:
    _FACTORIES["endpoint"] = _endpoint


def _harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    made = {**_FACTORIES, **_ASYNC, "rclone": _rclone}[request.param](request)
    yield made
    for store in made.opened:
        store.close()


#: A third server of S3 says no more of our requests than the others.
_LONG: Final = [pytest.param("rclone", marks=pytest.mark.long)]
harness = pytest.fixture(_harness, params=[*sorted(_FACTORIES), *_LONG], name="harness")
#: Also with small objects over asyncio first, for tests that read or write such.
either = pytest.fixture(_harness, params=[*sorted({**_FACTORIES, **_ASYNC}), *_LONG], name="either")


@pytest.fixture(scope="session", autouse=True)
def _one_loader() -> Iterator[None]:
    """botocore reads its service models once for all tests, not once per store."""
    with pytest.MonkeyPatch.context() as patch:
        loader = botocore.loaders.create_loader()
        patch.setattr("botocore.loaders.create_loader", lambda *_: loader)
        yield


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, *form).decode()


@pytest.fixture
def service_account(private_key: str, scripted: ScriptedServer) -> str:
    """The JSON key of a service account whose tokens come from the scripted server."""
    return json.dumps(
        {
            "type": "service_account",
            "client_email": "mover@project.iam.gserviceaccount.com",
            "token_uri": f"{scripted.url}/token",
            "private_key": private_key,
        }
    )
