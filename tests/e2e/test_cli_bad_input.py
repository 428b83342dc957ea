"""Bad input that only a store can find: one line, exit 2, nothing started, nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.ports import free_port

from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.e2e.conftest import Home, S3Server

pytestmark = pytest.mark.e2e


@pytest.fixture
def places(
    home: Home, servers: tuple[S3Server, S3Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """Names to be used in a command; the process looks like one of the private home."""
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    here = servers[0]
    buckets = {row["Name"] for row in here.client().list_buckets()["Buckets"]}
    if "bad-input" not in buckets:
        here.make_bucket("bad-input")
        here.fill("bad-input", "data/", {"one": b"1"})
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"x")
    yield {
        "bucket": "s3://bad-input",
        "here": here.endpoint,
        "tmp": str(tmp_path),
        "closed": f"http://127.0.0.1:{free_port()}",
    }
    assert home.traces() == []
    assert here.digests("bad-input").keys() == {"data/one"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "tree"]


BAD = [
    ("cp -r s3://missing-bucket/x/ {tmp}/new --src-endpoint {here}", "missing-bucket"),
    ("cp -r {tmp}/tree s3://missing-bucket/ --dst-endpoint {here}", "missing-bucket"),
    ("cp -r {bucket}/nothing/ {tmp}/new --src-endpoint {here}", "no objects under"),
    ("cp {bucket}/data {tmp}/new --src-endpoint {here}", "recursive"),
    (
        "cp -r {bucket}/data/one {tmp}/new --src-endpoint {here}",
        "'{bucket}/data/one' is one object",
    ),
    ("cp {bucket}/nothing {tmp}/new --src-endpoint {here}", "no object 'nothing'"),
    ("cp {bucket} {tmp}/new --src-endpoint {here}", "to copy the whole bucket, copy recursively"),
    (
        "cp -r {bucket}/ {tmp}/new --src-endpoint {here} --include data/*.csv",
        "the filters leave out the only object under '{bucket}/'",
    ),
    (
        "cp -r {bucket} {bucket} --src-endpoint {here} --dst-endpoint {here}",
        "source {bucket}/ and destination {bucket}/ are the same place",
    ),
    (
        "cp -r {bucket}/data/ {bucket}/data/copy/ --src-endpoint {here} --dst-endpoint {here}",
        "lies in the source",
    ),
    (
        "cp -r {tmp}/tree/ {bucket}/ --dst-endpoint {closed}",
        "destination: listing {bucket}/ at {closed}: ",
    ),
    (
        "cp -r {bucket}/ {tmp}/new --src-endpoint {closed}",
        "source: asking for the region of {bucket} at",
    ),
    ("plan {bucket}/nothing/ {tmp}/new --src-endpoint {here}", "no objects under"),
    ("doctor --provisioner cloud", "needs --clouds"),
    ("doctor --provisioner ssh", "needs --hosts"),
]


@pytest.mark.parametrize(("command", "clue"), BAD, ids=[command for command, _ in BAD])
def test_bad_input_is_refused_in_one_line(
    places: dict[str, str], capsys: pytest.CaptureFixture[str], command: str, clue: str
) -> None:
    code = main([word.format(**places) for word in command.split()])
    output = capsys.readouterr()
    assert (code, output.out) == (2, ""), output.err
    assert output.err.count("\n") == 1, output.err
    assert output.err.startswith("skyplane-orch: ")
    assert clue.format(**places) in output.err
