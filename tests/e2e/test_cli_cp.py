"""`cp` as users run it: a process of its own, real gateways, two S3 servers."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.e2e.conftest import Home, S3Server

pytestmark = pytest.mark.e2e

MIB = 1 << 20
ODD_KEYS = ("two words", "a+b=c", "100%25", "größe-東京", "semi;colon&'quote'", "deep/er/one")


def orch(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "skyplane_orchestration.cli", *arguments],
        env=home.environment,
        cwd=home.directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def orch_here(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As `orch`, inside this process: a second sooner, for tests of what the command does."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, home.environment, clear=True),
        contextlib.chdir(home.directory),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        code = main(arguments)
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


def answer_of(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    """Several parts, exactly a part, small ones, an empty one, odd keys, a marker."""
    made = {"large.bin": os.urandom(12 * MIB + 7), "part.bin": os.urandom(5 * MIB), "empty": b""}
    made |= {f"small/{number}": os.urandom(1000 + number) for number in range(20)}
    made |= {f"odd/{key}": key.encode() for key in ODD_KEYS}
    return made | {"_SUCCESS": b"ok"}


def digests_of(objects: dict[str, bytes]) -> dict[str, str]:
    return {key: hashlib.sha256(body).hexdigest() for key, body in objects.items()}


def test_a_directory_goes_to_a_bucket_and_back(
    home: Home, servers: tuple[S3Server, S3Server], objects: dict[str, bytes], tmp_path: Path
) -> None:
    _, there = servers
    bucket = there.make_bucket("there-and-back")
    tree = tmp_path / "tree"
    for key, body in objects.items():
        (tree / key).parent.mkdir(parents=True, exist_ok=True)
        (tree / key).write_bytes(body)

    url = f"s3://{bucket}/some/prefix/"
    up = orch(
        home, "cp", "-r", str(tree), url, "--dst-endpoint", there.endpoint, "--chunk-mib", "5",
        "--json",
    )  # fmt: skip
    result = answer_of(up)
    assert (result["state"], result["copied"], result["failed"]) == ("succeeded", len(objects), 0)
    assert result["copied_bytes"] == sum(map(len, objects.values()))
    assert there.digests(bucket, "some/prefix/") == digests_of(objects)

    back = tmp_path / "back"
    down = orch_here(home, "cp", "-r", url, str(back), "--src-endpoint", there.endpoint, "--json")
    assert answer_of(down)["copied"] == len(objects)
    found = {
        str(path.relative_to(back)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in back.rglob("*")
        if path.is_file()
    }
    assert found == digests_of(objects)
    assert home.traces() == []
    assert there.open_uploads(bucket) == []


def test_a_folder_goes_to_several_destinations(
    home: Home, servers: tuple[S3Server, S3Server], objects: dict[str, bytes]
) -> None:
    """Two share a fleet; the second one in a region, and one that is missing, do not stop them."""
    here, there = servers
    source, first, second = here.make_bucket("all-a"), *map(there.make_bucket, ("all-b", "all-c"))
    afar = replace(there, region="aws:eu-central-1")
    third = afar.make_bucket("all-d")
    here.fill(source, "p/", objects)
    urls = [f"s3://{bucket}/q/" for bucket in (first, second, third, "all-missing")]
    words = ["cp", "-r", f"s3://{source}/p/", urls[0]]
    words += [word for url in urls[1:] for word in ("--also", url)]
    words += ["--src-endpoint", here.endpoint, "--dst-endpoint", there.endpoint, "--json"]
    answer = answer_of(done := orch(home, *words), 1)
    assert answer["destinations"].keys() == set(urls[:3])
    for url, bucket in zip(urls, (first, second, third), strict=False):
        result = answer["destinations"][url]
        assert (result["state"], result["copied"]) == ("succeeded", len(objects))
        assert there.digests(bucket, "q/") == digests_of(objects)
    assert [done.stderr.count(f" in {count} regions up") for count in (3, 2)] == [1, 1]
    assert answer["errors"].keys() == {urls[3]}
    assert home.traces() == []


def test_a_bucket_goes_to_another_endpoint_over_relays(
    home: Home, servers: tuple[S3Server, S3Server], objects: dict[str, bytes], tmp_path: Path
) -> None:
    here, there = servers
    source, destination = here.make_bucket("two-ends-a"), there.make_bucket("two-ends-b")
    here.fill(source, "p/", objects)
    # As an S3 tool's user has it: endpoints by flag, credentials in the environment.
    command = (
        "cp", "-r", f"s3://{source}/p/", f"s3://{destination}/q", "--json", "--chunk-mib", "5",
        "--src-endpoint", here.endpoint, "--dst-endpoint", there.endpoint,
        "--min-throughput-gbps", "4.1", "--instance-limit", "1",
    )  # fmt: skip
    manifest = ("--manifest", str(tmp_path / "manifest.parquet"))
    dry = answer_of(orch_here(home, *command, "--dry-run"))
    assert dry["summary"]["objects"] == dry["summary"]["copy"] == len(objects)
    assert dry["summary"]["bytes"] == sum(map(len, objects.values()))
    assert {
        "source": f"s3://{source}/p/odd/a+b=c",
        "destination": f"s3://{destination}/q/odd/a+b=c",
        "bytes": 5,
        "action": "copy",
        "reason": dry["objects"][0]["reason"],
    } in dry["objects"]
    assert there.digests(destination) == {}

    result = answer_of(orch_here(home, *command, *manifest))
    assert result["copied"] == len(objects)
    assert any(edge["src"] not in (here.region, there.region) for edge in result["edges"])
    assert there.digests(destination, "q/") == digests_of(objects)
    assert (tmp_path / "manifest.parquet").stat().st_size > 0

    again = orch(home, *command, "--conflict", "fail")
    document = answer_of(again, code=1)
    assert document["error"]["code"] == "transfer-failed"
    assert document["result"]["failed"] == len(objects)
    assert [key for key in there.digests(destination) if ".skyplane" in key] == []
    assert len(again.stderr.splitlines()[-1]) > 20
    assert again.stderr.splitlines()[-1].startswith("skyplane-orch: ")
    assert "Traceback" not in again.stderr
    assert home.traces() == []


def test_the_steps_one_by_one(
    home: Home, servers: tuple[S3Server, S3Server], tmp_path: Path
) -> None:
    here, there = servers
    source, destination = here.make_bucket("steps-a"), there.make_bucket("steps-b")
    here.fill(source, "", {"one": b"1", "two": b"22"})
    ends = (
        f"s3://{source}/", f"s3://{destination}/",
        "--src-endpoint", here.endpoint, "--dst-endpoint", there.endpoint,
    )  # fmt: skip
    plan = orch_here(home, "plan", *ends, "--instance-limit", "1", "--json")
    assert answer_of(plan)["src"] == here.region
    (tmp_path / "plan.json").write_text(plan.stdout)
    document = str(tmp_path / "fleet.json")
    up = orch_here(
        home, "provision", str(tmp_path / "plan.json"), "--run", "nightly", "-o", document
    )
    assert up.returncode == 0, up.stderr
    fleet = json.loads(Path(document).read_text())
    assert " up in " in up.stderr
    again = orch_here(home, "provision", str(tmp_path / "plan.json"), "--run", "nightly")
    assert answer_of(again)["gateways"] == fleet["gateways"]

    moved = orch_here(home, "transfer", *ends, "-r", "--fleet", document, "--json")
    assert answer_of(moved)["copied"] == 2
    status = answer_of(orch_here(home, "status", "--fleet", document, "--json"))
    assert {gateway["state"] for gateway in status["gateways"].values()} == {"running"}
    led = [one for gateway in status["gateways"].values() for one in gateway["leading"].values()]
    assert [transfer["state"] for transfer in led] == ["succeeded"]
    assert status["cost"] == answer_of(moved)["cost"]
    assert status["estimated_usd"] == answer_of(plan)["cost"]["total_usd"]
    assert there.digests(destination).keys() == {"one", "two"}

    swept = answer_of(orch_here(home, "sweep", "--dry-run", "--older-than-s", "0", "--json"))
    assert [orphan["key"] for orphan in swept["orphans"]] == [fleet["key"]]
    down = answer_of(orch_here(home, "teardown", "--fleet", document, "--json"))
    nodes = [gateway["node"] for gateway in fleet["gateways"]]
    assert down == {"fleet": fleet["key"], "provisioner": "local", "stopped": nodes}
    twice = answer_of(orch_here(home, "teardown", "--fleet-key", fleet["key"], "--json"))
    assert twice["stopped"] == []
    assert home.traces() == []
    gone = orch_here(home, "status", "--fleet", document, "--json")
    assert answer_of(gone, code=1)["gateways"][fleet["gateways"][0]["node"]]["error"]["code"]
    lost = orch_here(home, "transfer", *ends, "-r", "--fleet", document)
    assert lost.returncode == 1
    assert lost.stderr.startswith("skyplane-orch: the fleet is gone")


def test_archived_objects_are_refused_before_a_byte_moves(
    home: Home, servers: tuple[S3Server, S3Server], tmp_path: Path
) -> None:
    here, _ = servers
    bucket = here.make_bucket("archived")
    client = here.client()
    for key, storage_class in (("cold", "GLACIER"), ("plain", "STANDARD")):
        client.put_object(Bucket=bucket, Key=key, Body=b"body", StorageClass=storage_class)  # type: ignore[arg-type]
    command = ("cp", "-r", f"s3://{bucket}/", f"{tmp_path}/out", "--src-endpoint", here.endpoint)

    dry = answer_of(orch_here(home, *command, "--dry-run", "--json"))
    assert (dry["summary"]["copy"], dry["summary"]["refuse"]) == (1, 1)
    plan = answer_of(orch_here(home, "plan", *command[2:], "--json"))
    assert any("the volume includes 1 archived object" in note for note in plan["notes"])
    result = answer_of(orch_here(home, *command, "--json"), code=1)["result"]
    assert (result["copied"], result["failures"][0]["code"]) == (1, "not-restored")
    assert "aws s3api restore-object" in result["failures"][0]["reason"]
    result = answer_of(orch_here(home, *command, "--on-archived-object", "skip", "--json"))
    assert (result["copied"], result["skipped"]) == (1, 1)
    assert "has archived them: 1 object" in result["warnings"][0]
    # The server lists no restores.
    client.restore_object(Bucket=bucket, Key="cold", RestoreRequest={"Days": 1})
    result = answer_of(orch_here(home, *command, "--on-archived-object", "read", "--json"))
    assert (result["copied"], (tmp_path / "out/cold").read_bytes()) == (2, b"body")
