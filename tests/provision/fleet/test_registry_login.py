"""What an instance asks for the password of a registry, as the vendors' pages say."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs
from urllib.request import Request

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from skyplane_orchestration.provision.fleet import registry_login
from skyplane_orchestration.provision.fleet.registry_login import PASSWORDS

KEYS: Final = {
    "Code": "Success",
    "Type": "AWS-HMAC",
    "AccessKeyId": "ASIAEXAMPLE",
    "SecretAccessKey": "secret/of+the=role",
    "Token": "token/of+the=role",
}
ROLE: Final = "/latest/meta-data/iam/security-credentials/"
TTL: Final = "x-aws-ec2-metadata-token-ttl-seconds"
GOOGLE: Final = "/computeMetadata/v1/instance/service-accounts/default/token"
AZURE: Final = (
    "/metadata/identity/oauth2/token?api-version=2018-02-01"
    "&resource=https%3A%2F%2Fcontainerregistry.azure.net%2F"
)
#: Method and path -> the header that must be there, its value, and the answer.
METADATA: Final = {
    ("PUT", "/latest/api/token"): (TTL, "300", "imds"),
    ("GET", ROLE): ("x-aws-ec2-metadata-token", "imds", "puller\n"),
    ("GET", ROLE + "puller"): ("x-aws-ec2-metadata-token", "imds", json.dumps(KEYS)),
    ("GET", GOOGLE): ("metadata-flavor", "Google", '{"access_token": "ya29", "expires_in": 1}'),
    ("GET", AZURE): ("metadata", "true", '{"access_token": "entra", "expires_in": "1"}'),
}


class Metadata(BaseHTTPRequestHandler):
    """The metadata services of all clouds: none answers a request that came through a proxy."""

    def do_GET(self) -> None:
        header, value, answer = METADATA.get((self.command, self.path), ("", "", ""))
        is_right = bool(header) and self.headers[header] == value
        body = answer.encode() if is_right and "X-Forwarded-For" not in self.headers else b""
        self.send_response(200 if body else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # A proxy of the machine would not reach the metadata service.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(registry_login, "METADATA", f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()
        thread.join()


def answering(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[Request], dict[str, Any]]
) -> list[Request]:
    """The requests by HTTPS, which it answers."""
    asked: list[Request] = []

    def opened(request: Request, timeout: float) -> io.BytesIO:
        asked.append(request)
        return io.BytesIO(json.dumps(answer(request)).encode())

    monkeypatch.setattr(registry_login, "urlopen", opened)
    return asked


def signature_of_botocore(request: Request, region: str) -> str:
    """The header that AWS's own library writes for this request."""
    headers = {name.lower(): value for name, value in request.header_items()}
    del headers["authorization"]
    peer = AWSRequest("POST", request.full_url, headers=headers, data=request.data)
    peer.context["timestamp"] = headers["x-amz-date"]
    credentials = Credentials(KEYS["AccessKeyId"], KEYS["SecretAccessKey"], KEYS["Token"])
    signer = SigV4Auth(credentials, "ecr", region)
    text = signer.string_to_sign(peer, signer.canonical_request(peer))
    names = signer.signed_headers(signer.headers_to_sign(peer))
    return (
        f"AWS4-HMAC-SHA256 Credential={signer.scope(peer)}, SignedHeaders={names},"
        f" Signature={signer.signature(text, peer)}"
    )


@pytest.mark.parametrize(
    ("region", "suffix"), [("eu-west-3", "amazonaws.com"), ("cn-north-1", "amazonaws.com.cn")]
)
def test_ecr_gives_a_password_for_a_request_that_the_role_has_signed(
    region: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = base64.b64encode(b"AWS:the:password").decode()
    asked = answering(monkeypatch, lambda _: {"authorizationData": [{"authorizationToken": token}]})
    assert PASSWORDS["aws"](f"123456789012.dkr.ecr.{region}.{suffix}") == "the:password"
    (request,) = asked
    assert (request.get_method(), request.full_url) == (
        "POST",
        f"https://api.ecr.{region}.{suffix}/",
    )
    assert request.data == b"{}"
    headers = {name.lower(): value for name, value in request.header_items()}
    assert headers["content-type"] == "application/x-amz-json-1.1"
    target = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
    assert headers["x-amz-target"] == target
    assert headers["x-amz-security-token"] == KEYS["Token"]
    assert headers["authorization"] == signature_of_botocore(request, region)


def test_the_password_of_artifact_registry_is_a_token_of_the_service_account() -> None:
    assert PASSWORDS["gcp"]("europe-west1-docker.pkg.dev") == "ya29"


def test_container_registry_gives_its_own_token_for_one_of_the_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = answering(monkeypatch, lambda _: {"refresh_token": "refresh"})
    assert PASSWORDS["azure"]("myteam.azurecr.io") == "refresh"
    (request,) = asked
    assert request.full_url == "https://myteam.azurecr.io/oauth2/exchange"
    assert request.get_method() == "POST"
    assert request.get_header("Content-type") == "application/x-www-form-urlencoded"
    assert isinstance(request.data, bytes)
    assert parse_qs(request.data.decode(), strict_parsing=True) == {
        "grant_type": ["access_token"],
        "service": ["myteam.azurecr.io"],
        "access_token": ["entra"],
    }
