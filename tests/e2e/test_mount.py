"""`skyplane-orch mount` on a real S3 server, by rclone: what is written arrives, nothing stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from tests.e2e.held_store import wait_for
from tests.e2e.places import UNAVAILABLE, emulated
from tests.faults import versitygw
from tests.faults.go_programs import Unavailable
from tests.faults.tools import RCLONE
from tests.ports import free_port

from skyplane_orchestration.storage.mount import is_mounted

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="there is no /dev/fuse"),
    pytest.mark.skipif(not shutil.which("fusermount3"), reason="fuse3 is not installed"),
]
BUCKET = "bucket"
SECRET = "versity-secret"


@dataclass
class Site:
    server: versitygw.Server
    folder: Path
    cache: Path
    environment: dict[str, str]
    said: str = ""

    def get(self, key: str) -> bytes:
        return self.client().get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def listed(self) -> set[str]:
        rows = self.client().list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {row["Key"] for row in rows}

    def client(self) -> S3Client:
        return boto3.client(
            "s3",
            endpoint_url=self.server.url,
            region_name="us-east-1",
            aws_access_key_id=self.server.access_key_id,
            aws_secret_access_key=self.server.secret_access_key,
        )

    @contextmanager
    def command(
        self, *words: str, url: str = f"s3://{BUCKET}/in/"
    ) -> Iterator[subprocess.Popen[str]]:
        """The command, once it has mounted or has ended."""
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "skyplane_orchestration.cli", "mount"),
                *(url, self.folder, "--src-endpoint", self.server.url),
                *("--src-credentials", "env:KEYS", *words),
            ],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            self.said = process.stdout.readline()
            yield process
        finally:
            process.kill()
            process.communicate()

    def rclone(self, process: subprocess.Popen[str]) -> int:
        """The process id of the tool."""
        return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "s3").mkdir()
    (tmp_path / "programs").mkdir()
    folder = tmp_path / "a folder"
    folder.mkdir()
    try:
        (tmp_path / "programs/rclone").symlink_to(RCLONE.binary())
        with versitygw.running(tmp_path / "s3") as server:
            environment = {
                **os.environ,
                "HOME": str(tmp_path),
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                "PATH": f"{tmp_path}/programs:{os.environ['PATH']}",
                "KEYS_ACCESS_KEY_ID": server.access_key_id,
                "KEYS_SECRET_ACCESS_KEY": server.secret_access_key,
            }
            site = Site(server, folder, tmp_path / "cache/skyplane-orch", environment)
            site.client().create_bucket(Bucket=BUCKET)
            site.client().put_object(Bucket=BUCKET, Key="in/x.txt", Body=b"from the store")
            yield site
    except Unavailable as error:
        pytest.skip(str(error))
    finally:
        if is_mounted(folder):
            subprocess.run(["fusermount3", "-uz", str(folder)], check=False)


def ended(site: Site, process: subprocess.Popen[str]) -> str:
    """What the command has said on stderr, once it has ended; nothing is mounted then."""
    said = process.communicate(timeout=60)[1]
    assert not is_mounted(site.folder)
    assert SECRET not in said
    return said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_file_is_written_through_and_its_upload_waited_for(site: Site, number: int) -> None:
    large = os.urandom(50 << 20)
    with site.command() as process:
        assert f"is at {site.folder} by rclone" in site.said
        assert (site.folder / "x.txt").read_bytes() == b"from the store"
        (site.folder / "new").mkdir()
        (site.folder / "new/small.txt").write_text("small")
        (site.folder / "large.bin").write_bytes(large)
        process.send_signal(number)
        said = ended(site, process)
    assert process.returncode == 0, said
    assert site.get("in/new/small.txt") == b"small"
    assert site.get("in/large.bin") == large
    assert not list(site.cache.iterdir())


def test_a_written_file_arrives_while_the_mount_goes_on(site: Site) -> None:
    with site.command():
        (site.folder / "new.txt").write_text("new")
        wait_for(lambda: "in/new.txt" in site.listed(), "the upload")
        (site.folder / "x.txt").unlink()
        wait_for(lambda: "in/x.txt" not in site.listed(), "the delete")


def test_no_secret_is_on_a_command_line_or_in_a_file(site: Site) -> None:
    with site.command() as process:
        for pid in (process.pid, site.rclone(process)):
            assert SECRET not in Path(f"/proc/{pid}/cmdline").read_text()
        assert not [one for one in site.cache.rglob("*") if one.is_file()]


def test_the_folder_is_unmounted_if_the_tool_is_killed(site: Site) -> None:
    with site.command() as process:
        os.kill(site.rclone(process), signal.SIGKILL)
        said = ended(site, process)
    assert process.returncode == 1
    assert "rclone has ended (-9)" in said


def test_what_a_killed_tool_has_not_uploaded_is_kept(site: Site) -> None:
    with site.command() as process, (site.folder / "open.txt").open("w") as file:
        file.write("precious")
        file.flush()
        os.kill(site.rclone(process), signal.SIGKILL)
        said = ended(site, process)
        with suppress(OSError):
            file.close()
    assert process.returncode == 1
    assert "files not uploaded: 1; copy them from" in said
    (kept,) = [one for one in site.cache.rglob("vfs/**/open.txt") if one.is_file()]
    assert kept.read_text() == "precious"


def test_the_tool_unmounts_if_the_command_is_killed(site: Site) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    with site.command() as process:
        process.kill()
        process.wait()
        wait_for(lambda: not is_mounted(site.folder), "the end of the mount")


def test_a_folder_in_use_is_unmounted_nevertheless(site: Site) -> None:
    with site.command() as process:
        user = subprocess.Popen(["sleep", "60"], cwd=site.folder)
        try:
            process.terminate()
            ended(site, process)
        finally:
            user.kill()
            user.wait()
    assert process.returncode == 0


def test_the_third_interrupt_does_not_wait_for_a_file_that_is_open(site: Site) -> None:
    with site.command() as process, (site.folder / "open.txt").open("w") as file:
        file.write("precious")
        file.flush()
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert "waiting for the upload of 1 file" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert "interrupt once more" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = ended(site, process)
        with suppress(OSError):
            file.close()
    assert process.returncode == 1
    assert "files not uploaded: 1; copy them from" in said


def test_it_ends_if_somebody_unmounts(site: Site) -> None:
    with site.command() as process:
        subprocess.run(["fusermount3", "-u", str(site.folder)], check=True)
        ended(site, process)
    assert process.returncode == 0


def test_read_only(site: Site) -> None:
    with site.command("--read-only", "--json") as process:
        assert site.said == "{\n"
        assert process.stdout is not None
        document = json.loads("{" + "".join(process.stdout.readline() for _ in range(3)))
        assert document == {"folder": str(site.folder), "tool": "rclone"}
        assert (site.folder / "x.txt").read_bytes() == b"from the store"
        with pytest.raises(OSError, match="Read-only"):
            (site.folder / "new.txt").write_text("new")
        process.terminate()
        ended(site, process)
    assert site.listed() == {"in/x.txt"}


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_other_clouds(site: Site, tmp_path: Path, kind: str) -> None:
    (tmp_path / "clouds").mkdir()
    try:
        with emulated(tmp_path / "clouds", "box") as places:
            place = places[kind]
            with closing(place.store()) as store:
                store.put("in/x.txt", b"from the store")
                words = ["--src-endpoint", place.endpoint]
                words += ["--src-credentials", "" if kind == "gcs" else "env:CLOUD"]
                for name, value in (place.credentials or {}).items():
                    site.environment[f"CLOUD_{name.upper()}"] = value
                with site.command(*words, url=place.location("in/", "").url) as process:
                    assert (site.folder / "x.txt").read_bytes() == b"from the store"
                    (site.folder / "new.txt").write_text("new")
                    process.terminate()
                    said = ended(site, process)
                assert process.returncode == 0, said
                assert {one.key for one in store.list("in/")} == {"in/x.txt", "in/new.txt"}
    except UNAVAILABLE as error:
        pytest.skip(str(error))


def test_a_missing_bucket_and_a_store_that_is_away(site: Site) -> None:
    with site.command(url="s3://nothing/") as process:
        said = ended(site, process)
    assert (process.returncode, said.count("\n")) == (2, 1), said
    site.server = versitygw.Server(f"http://127.0.0.1:{free_port()}", "", "", 0)
    with site.command() as process:
        said = ended(site, process)
    assert (process.returncode, said.count("\n")) == (1, 1), said
