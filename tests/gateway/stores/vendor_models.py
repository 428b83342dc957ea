"""What stores send and are answered, against what the vendors publish.

S3: botocore's model. Google Cloud Storage: its discovery document. Azure: the names of headers and
parameters, and the versions, in its own SDK; that has no model of values.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

import azure.storage.blob
import botocore.client
import pytest
import requests
import urllib3
from tests.faults.gcs_models import of_gcs

from skyplane_gateway.stores import http_client
from skyplane_gateway.stores.azure import async_requests as azure_requests
from skyplane_gateway.stores.gcs import async_requests as gcs_requests
from skyplane_gateway.stores.s3 import async_requests as s3_requests
from strict_clouds import aws_models, schemas

#: Of SigV4.
_SIGNED: Final = ("x-amz-date", "x-amz-content-sha256", "x-amz-security-token")
#: Of the requests for small objects, which go without botocore.
_S3_OPERATIONS: Final = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject"}


# Azure.


@cache
def _azure_names() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Headers, parameters of URLs and versions that the SDK knows."""
    folder = Path(azure.storage.blob.__file__).parent
    texts = [path.read_text() for path in (folder / "_generated" / "operations").glob("*.py")]
    headers = {one.lower() for text in texts for one in re.findall(r'_headers\["(.*?)"\]', text)}
    query = {one for text in texts for one in re.findall(r'_params\["(.*?)"\]', text)}
    versions = re.findall(r"\d{4}-\d\d-\d\d", (folder / "_serialize.py").read_text())
    return frozenset(headers), frozenset(query), frozenset(versions)


def of_azure(url: str, headers: Mapping[str, Any]) -> Iterator[str]:
    known, parameters, versions = _azure_names()
    signature = {"sv", "ss", "srt", "sp", "se", "st", "spr", "sig", "sr", "skoid", "sktid", "skt"}
    for name, _ in parse_qsl(urlsplit(url).query):
        if name not in parameters | signature | {"ske", "sks", "skv", "sdd", "sip"}:
            yield f"Azure has no parameter {name}"
    for name in map(str.lower, headers):
        is_ours = name.startswith("x-ms-meta-") or name == "x-ms-date"
        if name.startswith("x-ms-") and name not in known and not is_ours:
            yield f"Azure has no header {name}"
    if headers["x-ms-version"] not in versions:
        yield f"Azure has no version {headers['x-ms-version']}"


# S3.


def of_s3_headers(method: str, url: str, headers: Mapping[str, Any]) -> Iterator[str]:
    """Of a request for a small object."""
    name = _S3_OPERATIONS[method]
    shape: Any = aws_models.model("s3").operation_model(name).input_shape
    members = {
        one.serialization["name"].lower(): one
        for one in shape.members.values()
        if one.serialization.get("location") in ("header", "querystring")
    }
    sent = [*headers.items(), *parse_qsl(urlsplit(url).query, keep_blank_values=True)]
    for header, value in sent:
        lower = header.lower()
        if lower in members:
            text = value.decode() if isinstance(value, bytes) else str(value)
            if members[lower].type_name == "string":
                yield from aws_models.violations(members[lower], text, header)
        elif lower.startswith("x-amz-") and not lower.startswith(("x-amz-meta-", *_SIGNED)):
            yield f"S3 has no {header} in {name}"


# The hooks.


def _begin_of(body: Any) -> bytes:
    """The bytes of a body, or those of its first block, which holds what describes an object."""
    if body is None or iter(body) is body:
        return b""
    if isinstance(body, str):
        return body.encode()
    return body if isinstance(body, bytes) else bytes(next(iter(body)))


class Seen:
    """Violations of the test that runs."""

    def __init__(self) -> None:
        self.violations = schemas.Violations()
        self.with_answers = True

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Look at everything that the stores of this process send."""
        call = botocore.client.BaseClient._make_api_call  # type: ignore[attr-defined]
        send = requests.adapters.HTTPAdapter.send
        ask = urllib3.PoolManager.request

        def s3(client: Any, name: str, parameters: Any) -> Any:
            shape = client.meta.service_model.operation_model(name).input_shape
            sent = dict(parameters)
            if isinstance(source := sent.get("CopySource"), dict):
                # botocore makes the header of it.
                sent["CopySource"] = f"{source['Bucket']}/{quote(source['Key'])}"
            self.violations.add(name, aws_models.violations(shape, sent, "") if shape else ())
            return call(client, name, parameters)

        def gcs(adapter: Any, request: Any, **more: Any) -> Any:
            name, found = of_gcs(
                request.method, request.url, request.headers, _begin_of(request.body)
            )
            self.violations.add(name, found)
            answer = send(adapter, request, **more)
            is_json = "json" in answer.headers.get("Content-Type", "") and not more.get("stream")
            if name and self.with_answers and is_json and answer.status_code == 200:
                found = schemas.model("storage").answer(name, answer.json())
                self.violations.add(f"answer of {name}", found)
            return answer

        def blob(pool: Any, method: str, url: str, **more: Any) -> Any:
            if "x-ms-version" in more.get("headers", {}):
                self.violations.add(method, of_azure(url, more["headers"]))
            return ask(pool, method, url, **more)

        patch.setattr(botocore.client.BaseClient, "_make_api_call", s3)
        patch.setattr(requests.adapters.HTTPAdapter, "send", gcs)
        patch.setattr(urllib3.PoolManager, "request", blob)
        for module in (s3_requests, gcs_requests, azure_requests):
            patch.setattr(module, "send", self._sending(module))

    def _sending(self, module: Any) -> Any:
        async def send(
            method: str, url: str, headers: Mapping[str, str], body: Any = b"", **more: Any
        ) -> http_client.HttpResponse:
            if module is s3_requests:
                found = of_s3_headers(method, url, headers)
            elif module is azure_requests:
                found = of_azure(url, headers)
            else:
                _, found = of_gcs(method, url, headers, bytes(body))
            self.violations.add(method, found)
            return await http_client.send(method, url, headers, body, **more)

        assert inspect.iscoroutinefunction(module.send)
        return send


SEEN: Final = Seen()


def has_old_sdks() -> bool:
    """The line `oldest` of the matrix: its SDKs know less than what stores send."""
    return max(_azure_names()[2]) < "2026"


@pytest.fixture(autouse=True)
def requests_are_those_of_the_models(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test whose store sends what its vendor does not know fails at its end."""
    SEEN.violations = schemas.Violations()
    # Answers that a test has written may be wrong on purpose.
    SEEN.with_answers = "scripted" not in request.fixturenames
    with pytest.MonkeyPatch.context() as patch:
        if not has_old_sdks():
            SEEN.patch(patch)
        yield
    SEEN.violations.require_none()
