"""The first run on an account, in three steps: install, permissions, copy.

The clouds are strict fakes. The environment has credentials, and no file, image or address is
given. What a user's machine knows by itself comes in its place here: where the APIs are, by a
module that Python imports when it starts, and who answers with this machine's own address.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import boto3
import pytest
import requests
from azure.storage.blob import BlobServiceClient
from tests.clouds.fakes import open_arm, open_ec2, open_gce
from tests.clouds.gateways import GATEWAY
from tests.docs.pages import Page
from tests.faults import azurite, fake_gcs, moto_server
from tests.packaging.environments import make_environment_with_extra

from strict_clouds.arm import SUBSCRIPTION
from strict_clouds.gce import PROJECT
from strict_clouds.world import World

PAGE: Final = Page("docs/getting-started/aws-instances.md")
BODY: Final = b"first" * 1000

#: Told to the command alone; gateways have none of it.
PATCH: Final = """
from skyplane_orchestration.provision import cloud_registry
ambient = cloud_registry._ambient_settings
cloud_registry._ambient_settings = lambda name: {**ambient(name), "endpoint_url": %r}
"""


def steps() -> list[str]:
    """The commands of the page's first part, one text for each step."""
    part = PAGE.text.partition("## From the command line")[2].partition("\n## ")[0]
    found = re.split(r"^\d\. ", part, flags=re.MULTILINE)[1:]
    return ["".join(re.findall(r"```bash\n(.*?)```", one, re.DOTALL)) for one in found]


def test_a_first_run_has_three_steps_and_names_no_file_image_or_address() -> None:
    install, permissions, copy = steps()
    assert install.strip() == "pip install 'skyplane-orchestration[aws]'"
    assert "docs/reference/permissions/aws.json" in permissions
    words = shlex.split(copy)
    assert words[:3] == ["skyplane-orch", "cp", "-r"]
    assert words[5:] == ["--provisioner", "aws"]


@dataclass(frozen=True)
class Account:
    """Two places of one cloud, with an object in the first.

    Args:
        extra: names of what pip installs.
        api_url: of its instances.
        variables: credentials, and where the store is.
    """

    extra: tuple[str, ...]
    api_url: str
    variables: Mapping[str, str]
    ends: tuple[str, ...]


#: Opens an account, and checks at its end that all is copied and nothing left.
OpenAccount = Callable[[World, Path], AbstractContextManager[Account]]


@contextmanager
def aws(world: World, _: Path) -> Iterator[Account]:
    with moto_server.running() as url, open_ec2(world, deployments=("*",)) as ec2:
        keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
        s3 = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        s3.create_bucket(Bucket="example-virginia")
        s3.create_bucket(
            Bucket="example-paris", CreateBucketConfiguration={"LocationConstraint": "eu-west-3"}
        )
        s3.put_object(Bucket="example-virginia", Key="events/one", Body=BODY)
        ends = ("s3://example-virginia/events/", "s3://example-paris/events/")
        yield Account(("aws",), ec2.url, {**keys, "AWS_ENDPOINT_URL_S3": url}, ends)
        assert s3.get_object(Bucket="example-paris", Key="events/one")["Body"].read() == BODY
        assert not any(ec2.leftovers().values())


@contextmanager
def gcp(world: World, directory: Path) -> Iterator[Account]:
    with fake_gcs.running(directory / "gcs.log") as url, open_gce(world) as gce:
        for bucket in ("example-iowa", "example-belgium"):
            fake_gcs.create_bucket(url, bucket)
        upload = f"{url}/upload/storage/v1/b/example-iowa/o?uploadType=media&name=events/one"
        requests.post(upload, data=BODY, timeout=10).raise_for_status()
        variables = {"GOOGLE_CLOUD_PROJECT": PROJECT, "STORAGE_EMULATOR_HOST": url}
        ends = ("gs://example-iowa/events/", "gs://example-belgium/events/")
        regions = ("--src-region", "gcp:us-central1", "--dst-region", "gcp:europe-west1")
        yield Account(("gcp", "gcs"), gce.url, variables, (*ends, *regions))
        copied = f"{url}/storage/v1/b/example-belgium/o/events%2Fone?alt=media"
        assert requests.get(copied, timeout=10).content == BODY
        assert not any(gce.leftovers().values())


@contextmanager
def azure(world: World, directory: Path) -> Iterator[Account]:
    (directory / "blobs").mkdir()
    with azurite.running(directory / "blobs") as server, open_arm(world) as arm:
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={server.account};"
            f"AccountKey={server.account_key};BlobEndpoint={server.url}/{server.account};"
        )
        service = BlobServiceClient.from_connection_string(connection)
        for container in ("virginia", "amsterdam"):
            service.create_container(container)
        service.get_blob_client("virginia", "events/one").upload_blob(BODY)
        variables = {
            "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
            "AZURE_STORAGE_CONNECTION_STRING": connection,
        }
        ends = tuple(f"az://{server.account}/{one}/events/" for one in ("virginia", "amsterdam"))
        regions = ("--src-region", "azure:eastus", "--dst-region", "azure:westeurope")
        yield Account(("azure",), arm.url, variables, (*ends, *regions))
        blob = service.get_blob_client("amsterdam", "events/one")
        assert blob.download_blob().readall() == BODY
        assert not any(arm.leftovers().values())


class _Echo(BaseHTTPRequestHandler):
    """Answers with the address of who asks."""

    def do_GET(self) -> None:
        body = self.client_address[0].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def echo() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cloud", [aws, gcp, azure], ids=["aws", "gcp", "azure"])
def test_a_first_run_copies_and_leaves_nothing(
    cloud: OpenAccount, wheel: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        world = stack.enter_context(World(tmp_path / "machines", GATEWAY))
        account = stack.enter_context(cloud(world, tmp_path))
        python = make_environment_with_extra(tmp_path, wheel, *account.extra)
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(PATCH % account.api_url)
        command = [str(python.with_name("skyplane-orch")), "cp", "-r", *account.ends]
        command += ["--provisioner", account.extra[0], "--gateways", "always", "--json"]
        (tmp_path / "run").mkdir(mode=0o700)
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "XDG_RUNTIME_DIR": str(tmp_path / "run"),
                "PYTHONPATH": str(site),
                "SKYPLANE_EGRESS_ADDRESS_URLS": stack.enter_context(echo()),
                **account.variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["objects"] == 1
        assert len(world.machines) >= 2
        assert all(machine.firewall.rules for machine in world.machines)
        assert not any(machine.is_running for machine in world.machines)
