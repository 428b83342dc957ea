"""Gets the password of a private registry, by the identity of the instance that runs it.

It is part of the boot script, so it imports the standard library only. It writes the password to
its standard output.
"""

import base64
import hashlib
import hmac
import json
import sys
import time
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener, urlopen

METADATA = "http://169.254.169.254"
TIMEOUT_S = 30


def metadata(path: str, headers: dict[str, str], method: str = "GET") -> str:
    """What the metadata service answers; no proxy is asked."""
    request = Request(METADATA + path, headers=headers, method=method)
    with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())


def posted(url: str, body: str, headers: dict[str, str]) -> dict:  # type: ignore[type-arg]
    with urlopen(Request(url, body.encode(), headers), timeout=TIMEOUT_S) as answer:
        return dict(json.load(answer))


def signed(host: str, region: str, keys: dict[str, str], now: str) -> dict[str, str]:
    """Headers of an empty request for a token, by Signature Version 4.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
    """
    headers = {
        "content-type": "application/x-amz-json-1.1",
        "host": host,
        "x-amz-date": now,
        "x-amz-security-token": keys["Token"],
        "x-amz-target": "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
    }
    names = ";".join(headers)
    lines = [f"{name}:{value}" for name, value in headers.items()]
    body = hashlib.sha256(b"{}").hexdigest()
    request = "\n".join(["POST", "/", "", *lines, "", names, body])
    scope = f"{now[:8]}/{region}/ecr/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{keys['SecretAccessKey']}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys['AccessKeyId']}/{scope}, SignedHeaders={names},"
        f" Signature={key.hex()}"
    )
    return headers


def of_ecr(registry: str) -> str:
    """https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_GetAuthorizationToken.html"""
    _, _, _, region, suffix = registry.split(".", 4)
    name = "X-aws-ec2-metadata-token"
    token = {name: metadata("/latest/api/token", {f"{name}-ttl-seconds": "300"}, "PUT")}
    path = "/latest/meta-data/iam/security-credentials/"
    keys = json.loads(metadata(path + metadata(path, token).split()[0], token))
    host = f"api.ecr.{region}.{suffix}"
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    answer = posted(f"https://{host}/", "{}", signed(host, region, keys, now))
    pair = base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode()
    return pair.partition(":")[2]


def of_artifact_registry(_: str) -> str:
    """https://docs.cloud.google.com/artifact-registry/docs/docker/authentication"""
    path = "/computeMetadata/v1/instance/service-accounts/default/token"
    return str(json.loads(metadata(path, {"Metadata-Flavor": "Google"}))["access_token"])


def of_acr(registry: str) -> str:
    """https://azure.github.io/acr/AAD-OAuth.html"""
    asked = {"api-version": "2018-02-01", "resource": "https://containerregistry.azure.net/"}
    path = f"/metadata/identity/oauth2/token?{urlencode(asked)}"
    token = json.loads(metadata(path, {"Metadata": "true"}))["access_token"]
    form = {"grant_type": "access_token", "service": registry, "access_token": token}
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = posted(f"https://{registry}/oauth2/exchange", urlencode(form), kind)
    return str(answer["refresh_token"])


PASSWORDS = {"aws": of_ecr, "azure": of_acr, "gcp": of_artifact_registry}

if __name__ == "__main__":
    sys.stdout.write(PASSWORDS[sys.argv[1]](sys.argv[2]))
